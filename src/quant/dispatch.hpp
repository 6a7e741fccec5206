// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry point of quantization, for callers that have validated their
// arguments. It splits a request into operations, and finds a configuration and an engine for each
// operation.
#pragma once

#include <cstdint>

#include "core/context_state.hpp"
#include "quant/ops.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant {

/// Computes the results of a request: in one pass over the matrix if there is an operation for it,
/// else in several (quant/passes.hpp). Asserts instead of checking. Throws Error(out_of_memory)
/// before anything is written.
void run(ContextState& state, const Request& request);

/// Runs one operation, which must compute all wanted results. The configuration comes from the
/// Context's tuner; otherwise it is the default.
void run(ContextState& state, Op op, const Request& request);

/// Rows at any addresses: gathered rows, or parts of wider rows. On the CPU; kernels of a device
/// compute addresses themselves.
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
