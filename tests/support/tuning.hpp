// SPDX-License-Identifier: Apache-2.0
// Test support: contexts read tuned configurations as long as the object exists. Otherwise tests
// run without a tuner.
#pragma once

#include <stdlib.h>  // NOLINT: setenv is POSIX

namespace switchback::test {

class Tuning {
 public:
  Tuning() { ::setenv("SWITCHBACK_TUNE", "read", 1); }
  ~Tuning() { ::setenv("SWITCHBACK_TUNE", "off", 1); }
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
};

}  // namespace switchback::test
