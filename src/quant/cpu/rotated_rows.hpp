// SPDX-License-Identifier: Apache-2.0
// Engine zone: rows that are rotated and quantized while they are in a cache.
#pragma once

#include <cstdint>

#include "quant/cpu/engine.hpp"
#include "quant/cpu/scratch.hpp"

namespace switchback::quant::cpu {

/// RotatedRowsKernel(o, begin, end, stream, scratch): absmax and codes of these rows, rotated.
using RotatedRowsKernel = void (*)(const Request& o, std::int64_t begin, std::int64_t end,
                                   bool stream, float* scratch);
RotatedRowsKernel rotated_rows_kernel(const core::CpuFeatures& features);

/// The floats of scratch that a worker needs: a row, and the gap to the next worker's.
constexpr std::int64_t rotated_rows_scratch(std::int64_t cols) {
  return (cols + 15) / 16 * 16 + scratch_gap_bytes / std::int64_t{sizeof(float)};
}

}  // namespace switchback::quant::cpu
