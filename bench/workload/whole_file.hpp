// SPDX-License-Identifier: Apache-2.0
// Bench: files that are written at once: whole, or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace switchback::bench {

/// Whether a file may be made there: one that exists is replaced only with `force`. Throws
/// Error(invalid_argument) that names the option.
void check_new_file(std::string_view argument, const std::filesystem::path& file, bool force);
/// Makes a file of this text, whole or not at all, in place of one that is there. Throws
/// Error(io_error).
void write_new_file(const std::filesystem::path& file, std::string_view text);

}  // namespace switchback::bench
