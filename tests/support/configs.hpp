// SPDX-License-Identifier: Apache-2.0
// Test support: converts a ConfigChoice to a GemmConfig in one expression.
#pragma once

#include "gemm/int8/config.hpp"

namespace switchback::test {

/// The GemmConfig of a ConfigChoice. If the choice's numbers are not a valid configuration, the
/// result names an engine that does not exist.
inline gemm_int8::GemmConfig config_of(const ConfigChoice& choice) {
  gemm_int8::GemmConfig config;
  if (!gemm_int8::from_choice(choice, config)) config.engine = static_cast<gemm_int8::EngineId>(-1);
  return config;
}

}  // namespace switchback::test
