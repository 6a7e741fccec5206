// SPDX-License-Identifier: Apache-2.0
// Bench: what a long command tells the person who waits, on stderr: lines that stay, and on a
// terminal one that is redrawn.
#pragma once

#include <string>

namespace switchback::bench {

class StatusLine {
 public:
  /// Nothing is printed when quiet, except warnings.
  explicit StatusLine(bool quiet);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Replaces the line that is redrawn; nothing where there is no terminal.
  void status(const std::string& text);
  /// A line whether or not it is quiet.
  void line(const std::string& text);
  void note(const std::string& text);
  void warning(const std::string& text);
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace switchback::bench
