// SPDX-License-Identifier: Apache-2.0
// Bench: output files that are written completely or not at all, and new files of lines.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "autotune/store/file.hpp"

namespace switchback::bench {

/// Checks that an output file may be created: an existing file is replaced only with `force`.
/// Creates a file in its directory for a moment, so that a directory without write access is
/// noticed before the work. Throws Error(invalid_argument) or Error(io_error) that names the
/// option.
void check_new_file(std::string_view argument, const std::filesystem::path& file, bool force);
/// Writes a file with this text, completely or not at all; replaces an existing file. Throws
/// Error(io_error).
void write_new_file(const std::filesystem::path& file, std::string_view text);
/// Throws Error(invalid_argument) if the output file `file` is the input file `read`.
void check_not_the_same(std::string_view argument, const std::filesystem::path& file,
                        const std::filesystem::path& read);

/// A new output file that is written line by line. If the path is empty, nothing is written.
class NewLines {
 public:
  /// Creates the file. Throws like check_new_file(); devices and pipes are only opened.
  NewLines(std::string_view argument, std::string path, bool force);
  /// Writes a line. Throws Error(io_error) if it cannot be written.
  void write(std::string_view line);

 private:
  std::string argument_, path_;
  autotune::File file_{-1};
};

}  // namespace switchback::bench
