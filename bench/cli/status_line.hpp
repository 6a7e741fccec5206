// SPDX-License-Identifier: Apache-2.0
// Bench: shows the progress of a long command on stderr: permanent lines, and on a terminal also a
// status line that is redrawn.
#pragma once

#include <string>

namespace switchback::bench {

class StatusLine {
 public:
  /// `quiet`: print only warnings.
  explicit StatusLine(bool quiet);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Replaces the status line; does nothing if stderr is not a terminal.
  void status(const std::string& text);
  /// Prints a permanent line, also when quiet.
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
