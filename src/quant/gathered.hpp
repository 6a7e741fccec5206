// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: rowwise quantization of rows at any addresses: gathered rows, or parts of wider
// rows. On the CPU; kernels of a device compute addresses themselves.
#pragma once

#include <cstdint>

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant {

struct GatheredRows {
  const void* const* rows = nullptr;  ///< [q.rows]: the first element of each row; null: no row
  DType dtype = DType::f32;           ///< f32, f16 or bf16
  MatrixView<std::int8_t> q;
  float* absmax = nullptr;  ///< [q.rows]
};

/// Row r of q and absmax[r] are equal to those of quantize_rowwise for the elements from rows[r]
/// on. If rows[r] is null, nothing is written.
void quantize_gathered(ContextState& state, const GatheredRows& rows);

}  // namespace switchback::quant
