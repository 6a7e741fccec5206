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

/// Along which side of d neighbouring tiles are made one after the other, so that they share what
/// they read in the L2 cache.
enum class FusedRaster : std::int64_t {
  heuristic = 0,  ///< along n, or along m if that has fewer tiles
  along_m = 1,
  along_n = 2,
};

/// d[m,n] = absmax_b · (absmax_a · (float(a[m,k] · b[n,k]ᵀ) · c)) + bias, rounded once to d's type.
/// Addresses of a, b and d and the bytes between their rows are multiples of 16, k is one of 16,
/// and the bytes of a row of d too; the bytes between rows are less than 2^40. absmax_a is aligned
/// to its elements; absmax_b and the bias may lie anywhere.
struct FusedArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  void* d;
  const float* absmax_a;  ///< [m]
  const float* absmax_b;  ///< [n], or [1] if scalar_b
  const void* bias;       ///< [n] or null
  DType bias_type;
  int m, n, k;
  std::int64_t a_stride, b_stride, d_stride;
  bool scalar_b;
  int multiprocessors;
  FusedRaster raster;
  int swizzle;  ///< tiles across a strip along that side: 1, 2, 4 or 8, as far as d has them
};

/// One shape of a fused kernel: rows and columns of d a block makes at a time, and how much of the
/// inner dimension a stage of its pipeline holds; the blocks of a cluster, which share what they
/// read, along m and n.
struct FusedVariant {
  int tile_m;
  int tile_n;
  int tile_k;
  int cluster_m;
  int cluster_n;
  std::size_t shared_bytes;  ///< of a block
  /// Scratch it wants, 256-byte aligned.
  std::size_t (*workspace_bytes)(DType output, const FusedArguments& arguments);
  cudaError_t (*launch)(DType output, const FusedArguments& arguments, void* workspace,
                        cudaStream_t stream);
};

/// Those of this build for a compute capability (90 is 9.0) whose blocks may have so much shared
/// memory: code of 8.0 runs on all of 8.x, that of 9.0 on no other. The first is the one to use
/// when nothing better is known. Where there is none, `why_none` says why.
std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::size_t shared_bytes_per_block,
                                             std::string_view& why_none) noexcept;

/// Those that were compiled for 8.0 and 9.0. What not every device of 8.x has the shared memory for
/// comes last.
std::span<const FusedVariant> built_for_sm80(std::string_view& why_none) noexcept;
std::span<const FusedVariant> built_for_sm90(std::string_view& why_none) noexcept;

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
