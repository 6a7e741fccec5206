// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a PackedWeight is inside: the bytes of one engine's layout.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/aligned_buffer.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback {

struct PackedWeightState {
  const gemm_int8::Engine* engine = nullptr;  ///< null: nothing packed yet
  Device device;                              ///< whose memory the bytes are in
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  core::AlignedBuffer buffer;
};

class Context;
class PackedWeight;

namespace gemm_int8 {

/// Makes `out` a packed b[n,k] whose codes are still to be written, and returns where: for an
/// engine that packs rows as they are. Without data for one that does not: pack_weight is for
/// those.
MatrixView<std::int8_t> begin_packed_rows(Context& context, std::int64_t n, std::int64_t k,
                                          PackedWeight& out, std::string_view engine);

}  // namespace gemm_int8

}  // namespace switchback
