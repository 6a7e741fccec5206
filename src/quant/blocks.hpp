// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: quantization of matrices whose codes are not stored as a matrix. They are passed
// on block by block to the code that packs them.
#pragma once

#include <cstdint>
#include <span>

#include "core/code_blocks.hpp"
#include "quant/request.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// Codes that are passed on to a sink block by block, and the array for their scales.
struct BlocksOut {
  Scales scales = Scales::none;
  std::span<float> absmax{};  ///< the scales of all matrices, one after another
  const core::CodeSink* sink = nullptr;
};

/// A request to quantize each of several matrices, which lie below each other in x. The sinks of q
/// and of q_t both get blocks in the orientation of x: q_t differs from q only in its scales, and
/// is not transposed.
struct BlocksRequest {
  ConstAnyMatrix x{};  ///< [matrices·rows, cols], f32, f16 or bf16
  std::int64_t matrices = 1;
  BlocksOut q{};    ///< scales per_row or global
  BlocksOut q_t{};  ///< scales per_column or global
};

/// Whether quantize_blocks() can run here: it needs a CPU with vector instructions.
bool has_blocks(const ContextState& state) noexcept;

/// Quantizes the matrices and passes their codes to the sinks. Asserts instead of checking; no
/// matrix is empty. Codes and scales are equal to those that run() computes for each matrix alone.
/// Throws Error(out_of_memory) before anything is written.
void quantize_blocks(ContextState& state, const BlocksRequest& request);

}  // namespace switchback::quant
