// SPDX-License-Identifier: Apache-2.0
// Engine zone: what a fused product costs, as far as it is known before it was measured: for
// defaults.
#pragma once

#include <cstdint>

#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// Clocks of d[m,n] over k products: the tiles that a multiprocessor computes, one after the other,
/// times the clocks of a tile. Comparable among the variants of one compute capability.
double fused_cost(const FusedVariant& variant, int compute_capability, int multiprocessors,
                  std::int64_t m, std::int64_t n, std::int64_t k) noexcept;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
