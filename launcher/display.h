// What a person sees while a sweep runs: one line a finished stage, and how far it is. On a terminal the
// latter is a bar that is redrawn in place; elsewhere (a batch log) a plain line now and then.
#pragma once

#include <cstdio>
#include <string>

namespace headsweep {

class Display {
 public:
  // out: not owned. quiet: only what Always prints. bar: may be drawn if out is a terminal (mpirun gives rank
  // 0 a terminal that is none, whatever its own output is).
  Display(std::FILE* out, bool quiet, bool bar = true);
  ~Display();  // takes the bar away
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  void Line(const std::string& text);    // of interest
  void Always(const std::string& text);  // to be seen even when quiet
  // fraction: of the work, 0 to 1; text: "12/70 stages, …". Drawn at most every 0.2 s on a terminal, every 30
  // s elsewhere.
  void Progress(double fraction, const std::string& text, double now);
  void EndProgress();  // takes the bar away for good

 private:
  void Print(const std::string& text);
  void Write(const std::string& text);
  void ClearBar();
  void DrawBar();
  int Columns() const;
  std::FILE* out_;
  bool quiet_, terminal_;
  bool bar_drawn_ = false, ended_ = false;
  double fraction_ = 0, last_drawn_ = -1e9;
  std::string text_;
};

}  // namespace headsweep
