// SPDX-License-Identifier: Apache-2.0
// Tuner: what is installed with the library, found from the library's own file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace switchback::autotune {

/// The value of a variable; empty if it is not set. A program that runs with more rights than its
/// user ignores file names from the user's environment.
std::string from_environment(const char* name);

/// The folder of the list of tuned configurations; it need not exist.
std::filesystem::path installed_list();

/// The helper program that proves candidates, with its arguments: `named`, else $SWITCHBACK_PROVE,
/// else the one beside the library. Empty, and `why` says where it was looked for, if there is
/// none.
std::vector<std::string> helper_command(const std::string& named, std::string& why);

}  // namespace switchback::autotune
