// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a floating point weight rearranged once for x · Wᵀ, for a layer whose weight does
// not change (inference). No public function accepts such a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::floating {

class PackedStandardWeight {
 public:
  /// Packs w[N,K], which has at least one element. f16 is packed as f32, and so is bf16 if the CPU
  /// does not multiply it. Stays empty if no engine here gains from packing, or if the forced
  /// engine does not pack. `engine` is the forced engine's name, or empty.
  void pack(ContextState& state, ConstAnyMatrix w, std::string_view engine);
  void release() noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return buffer_.capacity_bytes(); }

  /// Whether multiply() can compute y[M,N] from x[M,K], and is the fastest way to compute it.
  [[nodiscard]] bool takes(ConstAnyMatrix x, AnyMatrix y) const noexcept;
  /// y[M,N] = x[M,K] · W[N,K]ᵀ + bias. Operands are validated, disjoint, and accepted by takes().
  void multiply(ContextState& state, ConstAnyMatrix x, ConstAnyMatrix bias, AnyMatrix y) const;

 private:
  core::AlignedBuffer buffer_;
  std::int64_t rows_ = 0;  ///< N, the rows of the weight; 0: nothing is packed
  std::int64_t cols_ = 0;  ///< K
  DType packed_as_ = DType::f32;
};

}  // namespace switchback::floating
