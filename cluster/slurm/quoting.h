// Words that other programs read back: a POSIX shell (bash), and sbatch, which reads the #SBATCH lines of a script by
// rules of its own. Pure.
#pragma once

#include <string>
#include <string_view>

namespace headsweep {

// text as one word of bash, whatever bytes it holds (no NUL): 'it'\''s', $'two\nlines', plain when nothing in it is special.
std::string QuoteForShell(std::string_view text);

// text as one word of an #SBATCH line. Throws ConfigError naming `what` for control characters, which no such line can
// hold.
std::string QuoteForSbatch(std::string_view text, std::string_view what);

// text where Slurm replaces % patterns (--output): with none left to replace.
std::string EscapePercent(std::string_view text);

}  // namespace headsweep
