// Vega, the library that draws the report's charts, as Debian installs it (package libjs-vega), to be written
// into the page.
#pragma once

#include <string>

namespace headsweep::report {

// Folders that are searched, in this order: $HEADSWEEP_VEGA, /usr/share/javascript/vega.
// The text of one <script> element that defines every module that page.js asks for. Throws Unsupported,
// naming what to install and where it was looked for, when a module is missing.
std::string VegaScript();

}  // namespace headsweep::report
