// SPDX-License-Identifier: Apache-2.0
// Test support: paths of the programs that tests start. They are in the folder of the test program,
// both in a build and in a bundle of the tests.
#pragma once

#include <filesystem>
#include <string>

namespace switchback::test {

inline std::string program_next_to_this(const char* name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

/// The tuner's helper program, built for the device that this program tests.
inline std::string validate_program() {
  return program_next_to_this("switchback-test-validate");
}

}  // namespace switchback::test
