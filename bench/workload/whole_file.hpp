// SPDX-License-Identifier: Apache-2.0
// Bench: files that are written at once: whole, or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "autotune/store/file.hpp"

namespace switchback::bench {

/// Whether a file may be made there: one that exists is replaced only with `force`. A file is made
/// in its directory for a moment, so that a place that cannot be written is noticed before the
/// work. Throws Error(invalid_argument) or Error(io_error) that names the option.
void check_new_file(std::string_view argument, const std::filesystem::path& file, bool force);
/// Makes a file of this text, whole or not at all, in place of one that is there. Throws
/// Error(io_error).
void write_new_file(const std::filesystem::path& file, std::string_view text);
/// What is read must not be replaced by what is made of it. Throws Error(invalid_argument).
void check_not_the_same(std::string_view argument, const std::filesystem::path& file,
                        const std::filesystem::path& read);

/// A new file that gets line after line. Without a name nothing is written.
class NewLines {
 public:
  /// Throws as check_new_file(); devices and pipes are only written to.
  NewLines(std::string_view argument, std::string path, bool force);
  /// Throws Error(io_error) as soon as a line cannot be written.
  void write(std::string_view line);

 private:
  std::string argument_, path_;
  autotune::File file_{-1};
};

}  // namespace switchback::bench
