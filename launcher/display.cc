#include "launcher/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace headsweep {
namespace {

constexpr double kTerminalInterval = 0.2, kPlainInterval = 30;
constexpr int kBarWidth = 24;

}  // namespace

Display::Display(std::FILE* out, bool quiet, bool bar) : out_(out), quiet_(quiet) {
  const char* kind = std::getenv("TERM");
  terminal_ = bar && ::isatty(::fileno(out)) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

Display::~Display() { ClearBar(); }

void Display::Line(const std::string& text) {
  if (!quiet_) Print(text);
}

void Display::Always(const std::string& text) { Print(text); }

void Display::Progress(double fraction, const std::string& text, double now) {
  fraction_ = std::clamp(fraction, 0.0, 1.0);
  text_ = text;
  if (quiet_ || ended_) return;
  if (now < last_drawn_ + (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  const bool first = last_drawn_ < 0;
  last_drawn_ = now;
  if (terminal_) {
    DrawBar();
  } else if (!first) {  // a sweep that ends within the interval needs no such line
    Print(text);
  }
}

void Display::EndProgress() {
  ClearBar();
  ended_ = true;
}

void Display::Print(const std::string& text) {
  const bool redraw = bar_drawn_;
  ClearBar();
  Write(text + "\n");
  if (redraw) DrawBar();
}

// A reader that has gone away (`headsweep run | head`) must not end the sweep: what cannot be written is
// dropped.
void Display::Write(const std::string& text) {
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

void Display::ClearBar() {
  if (!bar_drawn_) return;
  Write("\r\x1b[K");
  bar_drawn_ = false;
}

void Display::DrawBar() {
  const int full = static_cast<int>(fraction_ * kBarWidth);
  std::string line = "[" + std::string(static_cast<std::size_t>(full), '#') +
                     std::string(static_cast<std::size_t>(kBarWidth - full), '.') + "] " + text_;
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(10, Columns() - 1))));
  Write("\r" + line + "\x1b[K");
  bar_drawn_ = true;
}

int Display::Columns() const {
  winsize size = {};
  return ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace headsweep
