// SPDX-License-Identifier: Apache-2.0
// Test support: a directory that exists as long as the object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: mkdtemp is POSIX

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace switchback::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = ::testing::TempDir() + "switchback_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr)
      throw std::runtime_error("no temporary directory in " + ::testing::TempDir());
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace switchback::test
