// SPDX-License-Identifier: Apache-2.0
// Tuner: files that are installed with the library, found relative to the library's file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace switchback::autotune {

/// The value of an environment variable; empty if it is not set. A program with more rights than
/// its user (setuid) ignores file names from the user's environment.
std::string from_environment(const char* name);

/// The folder with the list of tuned configurations that is installed with the library. It need not
/// exist.
std::filesystem::path installed_list();

/// The command of the helper program that validates configurations: `named`, else
/// $SWITCHBACK_VALIDATE, else the helper next to the library. If no helper is found, the result is
/// empty and `why` lists the places that were searched.
std::vector<std::string> helper_command(const std::string& named, std::string& why);

}  // namespace switchback::autotune
