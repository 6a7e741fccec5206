// SPDX-License-Identifier: Apache-2.0
// Test support: options of a tuner that reads and writes only a test's directory.
#pragma once

#include <string>
#include <utility>

#include "support/temporary_directory.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {

/// There is no system directory.
inline TunerOptions tuner_options_in(const TemporaryDirectory& directory,
                                     std::string mode = "read") {
  TunerOptions options;
  options.mode = std::move(mode);
  options.cache_directory = directory.path().string();
  options.system_directory = (directory / "system").string();
  options.notice_others = false;  // machines that run tests are seldom quiet
  return options;
}

}  // namespace switchback::test
