// SPDX-License-Identifier: Apache-2.0
// Bench: progress of a long command on stderr: permanent lines, and on a terminal also a status
// line that is redrawn.
#pragma once

#include <string>

namespace switchback::bench {

class StatusLine {
 public:
  /// When quiet, only warnings are printed.
  explicit StatusLine(bool quiet);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Replaces the status line; does nothing without a terminal.
  void status(const std::string& text);
  /// Prints a line, also when quiet.
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
