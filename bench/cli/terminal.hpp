// SPDX-License-Identifier: Apache-2.0
// Bench: output for users: the width of the terminal, and checks that the text was written.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace switchback::bench {

/// The width of the terminal that a stream writes to. It is 0 without a terminal, so that output
/// piped to a file does not depend on a window. COLUMNS in the environment overrides both.
std::size_t terminal_columns(std::FILE* stream);

/// Flushes standard output. Throws Error(io_error) with the system's reason if some of the output
/// could not be written (a full disk, a closed pipe). Every command ends with this call.
void flush_stdout();

/// Formats a help text for `columns` columns. Lines that are too long are broken between words. If
/// an option's description begins at `description_column`, its further lines begin there too;
/// otherwise they are indented by four columns more than the first line. filled_paragraphs()
/// reflows the paragraphs of a footer, which are not indented.
std::string wrapped_help(std::string_view text, std::size_t columns,
                         std::size_t description_column);
std::string filled_paragraphs(std::string_view text, std::size_t columns);

/// Shows the progress of a long command on stderr: permanent lines, and on a terminal also a status
/// line that is redrawn.
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
