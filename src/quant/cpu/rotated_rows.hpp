// SPDX-License-Identifier: Apache-2.0
// Engine zone: rows that are rotated and quantized while they are in a cache.
#pragma once

#include <cstdint>

#include "quant/cpu/engine.hpp"

namespace switchback::quant::cpu {

/// Rotates the rows [begin, end) of o.x, and computes their absmax and codes. With `stream`, codes
/// are stored past the caches. scratch has room for a row of floats.
using RotatedRowsKernel = void (*)(const Request& o, std::int64_t begin, std::int64_t end,
                                   bool stream, float* scratch);
RotatedRowsKernel rotated_rows_kernel(const core::CpuFeatures& features);

}  // namespace switchback::quant::cpu
