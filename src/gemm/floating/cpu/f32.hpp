// SPDX-License-Identifier: Apache-2.0
// Engine zone: runs any Problem on an engine that only multiplies f32: 16-bit operands are widened
// panel by panel; bias and the rounding of the output follow the product.
#pragma once

#include <cstdint>

#include "core/context_state.hpp"
#include "gemm/floating/engine.hpp"

namespace switchback::floating {

/// d[m,n] (+)= op(a) · op(b), all f32; sizes at least 1.
struct F32Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float* d = nullptr;
  std::int64_t ldd = 0;
  bool accumulate = false;
};

using F32Core = void (*)(ContextState& context, const F32Gemm& gemm, const Config& config);

/// Computes the product on the calling thread, slowly and without taking any memory. It is for the
/// case that a library runs out of memory.
void multiply_without_memory(const F32Gemm& gemm) noexcept;

void run_on_f32(ContextState& context, const Problem& problem, const Config& config,
                const Operands& operands, F32Core core);

/// The bias of a Problem as aligned f32, copied to the frame; null if there is none.
const float* bias_as_f32(ContextState& context, core::Workspace::Frame& frame,
                         const Problem& problem, const Operands& operands);

}  // namespace switchback::floating
