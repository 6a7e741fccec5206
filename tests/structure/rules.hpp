// SPDX-License-Identifier: Apache-2.0
// Test support: rules of the source tree that a compiler does not check. Each is a function of one
// file's path and text, so that it can be tested with a planted violation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace switchback::test {

struct Violation {
  std::string path;
  int line = 0;
  std::string what;
};

/// A copy of the text in which comments and the contents of string and character literals are
/// blank; line ends stay. With keep_strings, only comments are blank.
std::string without_comments(std::string_view text, bool keep_strings);

/// Checks a file against all rules:
/// - An include never points to a higher layer (core <- quant, gemm <- linear <- autotune <- capi,
///   bench). A public header belongs to its layer, and no include climbs with "..".
/// - Public headers may include each other and the standard library, nothing else.
/// - The library's code must not print, exit or abort.
/// - No file may name a place outside of the project: no home directories, and in code no absolute
///   paths except the system's descriptions of itself (/proc, /sys).
std::vector<Violation> check_file(const std::string& path, const std::string& text);

}  // namespace switchback::test
