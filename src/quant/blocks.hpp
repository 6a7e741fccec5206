// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: quantization of matrices whose codes are not stored as they are, but handed over
// block by block to whoever arranges them.
#pragma once

#include <cstdint>
#include <span>

#include "core/code_blocks.hpp"
#include "quant/request.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// Codes to be handed over, and their scales.
struct BlocksOut {
  Scales scales = Scales::none;
  std::span<float> absmax{};  ///< of all matrices, one after the other
  const core::CodeSink* sink = nullptr;
};

/// The codes of each of the `matrices` below each other in x. Blocks of both results are blocks of
/// these: q_t differs from q only in its scales, and is not transposed.
struct BlocksRequest {
  ConstAnyMatrix x{};  ///< [matrices·rows, cols], f32, f16 or bf16
  std::int64_t matrices = 1;
  BlocksOut q{};    ///< per_row or global
  BlocksOut q_t{};  ///< per_column or global
};

/// Whether there is an engine for it here: a CPU with vector instructions.
bool has_blocks(const ContextState& state) noexcept;

/// Asserts and never checks; no matrix is empty. Codes and scales are those that run() computes of
/// each matrix alone. Throws Error(out_of_memory) before anything is written.
void quantize_blocks(ContextState& state, const BlocksRequest& request);

}  // namespace switchback::quant
