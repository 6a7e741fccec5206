// SPDX-License-Identifier: Apache-2.0
// Test support: the rules of the source tree that a compiler does not check, as functions of one
// file's path and text, so that each can be tested with a planted violation.
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

/// The text with comments and the contents of string and character literals blanked, newlines kept.
/// With keep_strings, only comments are blanked.
std::string without_comments(std::string_view text, bool keep_strings);

/// core <- quant <- gemm <- linear <- autotune <- capi, bench: an include never points up, a public
/// header belongs to its layer, and no include climbs with "..".
std::vector<Violation> check_layers(const std::string& path, const std::string& text);
/// Public headers include each other and the standard library, nothing else.
std::vector<Violation> check_public_includes(const std::string& path, const std::string& text);
/// The library never prints, exits or aborts.
std::vector<Violation> check_no_output(const std::string& path, const std::string& text);
/// Nothing names a place outside of the project: no home directories, and in code no absolute paths
/// except the system's descriptions of itself.
std::vector<Violation> check_no_outside_paths(const std::string& path, const std::string& text);

/// All of them.
std::vector<Violation> check_file(const std::string& path, const std::string& text);

}  // namespace switchback::test
