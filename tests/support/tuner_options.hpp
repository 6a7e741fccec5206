// SPDX-License-Identifier: Apache-2.0
// Test support: options of a tuner that reads and writes only a test's directory.
#pragma once

#include <string>
#include <utility>

#include "support/temporary_directory.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {

/// Options with the test's directory as the cache. Their system directory does not exist.
inline TunerOptions tuner_options_in(const TemporaryDirectory& directory,
                                     std::string mode = "read") {
  TunerOptions options;
  options.mode = std::move(mode);
  options.cache_directory = directory.path().string();
  options.system_directory = (directory / "system").string();
  options.notice_others = false;  // off: machines that run tests are seldom idle
  return options;
}

}  // namespace switchback::test
