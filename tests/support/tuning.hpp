// SPDX-License-Identifier: Apache-2.0
// Test support: contexts read tuned configurations as long as the object exists. Otherwise tests
// run without a tuner.
#pragma once

#include <stdlib.h>  // NOLINT: setenv is POSIX

#include <string>
#include <utility>

#include "gemm/int8/config.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {

class Tuning {
 public:
  Tuning() { ::setenv("SWITCHBACK_TUNE", "read", 1); }
  ~Tuning() { ::setenv("SWITCHBACK_TUNE", "off", 1); }
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
};

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

/// The GemmConfig of a ConfigChoice. If the choice's numbers are not a valid configuration, the
/// result names an engine that does not exist.
inline gemm_int8::GemmConfig config_of(const ConfigChoice& choice) {
  gemm_int8::GemmConfig config;
  if (!gemm_int8::from_choice(choice, config)) config.engine = static_cast<gemm_int8::EngineId>(-1);
  return config;
}

}  // namespace switchback::test
