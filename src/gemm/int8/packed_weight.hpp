// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the state of a PackedWeight: bytes in the layout of one engine.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.hpp"
#include "gemm/int8/engine.hpp"
#include "switchback/gemm.hpp"

namespace switchback {

struct PackedWeightState {
  const gemm_int8::Engine* engine = nullptr;  ///< null: nothing packed yet
  Device device;                              ///< the device whose memory holds the bytes
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t groups = 1;      ///< number of matrices [rows,cols], one after the other
  std::int64_t step_bytes = 0;  ///< distance between the matrices
  core::AlignedBuffer buffer;
};

}  // namespace switchback
