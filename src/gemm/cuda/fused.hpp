// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launches of the fused products: int8 operands in, scaled f32, f16 or bf16 out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/cuda/api.hpp"
#include "switchback/types.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// d[m,n] = absmax_b · (absmax_a · (float(a[m,k] · b[n,k]ᵀ) · c)) + bias, rounded once to d's type.
/// Addresses of a, b and d and the bytes between their rows are multiples of 16, k is one of 16,
/// and the bytes of a row of d too.
struct FusedArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  void* d;
  const float* absmax_a;  ///< [m]
  const float* absmax_b;  ///< [n], or [1] if scalar_b
  const float* bias;      ///< [n] or null
  int m, n, k;
  std::int64_t a_stride, b_stride, d_stride;
  bool scalar_b;
  int multiprocessors;
};

/// One shape of a fused kernel: rows and columns of d a block makes at a time, and the blocks of a
/// cluster, which share what they read.
struct FusedVariant {
  int tile_m;
  int tile_n;
  int cluster;
  /// Scratch it wants, 256-byte aligned.
  std::size_t (*workspace_bytes)(DType output, const FusedArguments& arguments);
  cudaError_t (*launch)(DType output, const FusedArguments& arguments, void* workspace,
                        cudaStream_t stream);
};

/// Those of this build for a compute capability (90 is sm_90, whose code runs on no other); the
/// first is the one to use when nothing better is known. Where there is none, `why_none` says why.
std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::string_view& why_none) noexcept;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
