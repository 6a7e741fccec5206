// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused products' kernels and their arguments: int8 operands in, scaled f32, f16
// or bf16 out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/cuda/api.hpp"
#include "switchback/types.hpp"

namespace switchback::products::cuda {

/// The side of d along which consecutive tiles are neighbours. Neighbours share their operands in
/// the L2 cache.
enum class FusedRaster : std::int64_t {
  heuristic = 0,  ///< along the side with fewer tiles; n if they are equal
  along_m = 1,
  along_n = 2,
};

/// d[m,n] = absmax_b · (absmax_a · (float(a[m,k] · b[n,k]ᵀ) · c)) + bias, rounded once to d's type.
/// Multiples of 16 are required: the addresses of a, b and d, the bytes between their rows, k, and
/// the bytes of a row of d. The bytes between rows must be less than 2^40. absmax_a is aligned to
/// its elements; absmax_b and the bias may have any address.
struct FusedArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  void* d;
  const float* absmax_a;  ///< [m]
  const float* absmax_b;  ///< [n], or [1] if scalar_b
  const void* bias;       ///< [n]; null: no bias
  DType bias_type;
  int m, n, k;
  std::int64_t a_stride, b_stride, d_stride;
  bool scalar_b;
  int multiprocessors;
  FusedRaster raster;
  int swizzle;    ///< width of a strip of tiles along the raster's side: 1, 2, 4 or 8
  bool overlaps;  ///< whether the kernel may begin early, and then waits for the kernel before it
  int device;     ///< index of the current device
  /// If above zero, d is rotated by groups of 4^rotation_stages columns (at most 256) before it is
  /// rounded. d has 16 bits then, and no bias. Only for rotating_variants().
  int rotation_stages = 0;

  friend bool operator==(const FusedArguments&, const FusedArguments&) = default;
};

/// One tile shape of a fused kernel: a line of shapes.def.
struct FusedVariant {
  int tile_m;                ///< rows of d in a thread block's tile
  int tile_n;                ///< columns of d in a thread block's tile
  int tile_k;                ///< codes along k in a stage; 0 stands for 128
  int cluster;               ///< thread blocks of a cluster, along m, that share b
  std::size_t shared_bytes;  ///< shared memory of a thread block
  /// The bytes of scratch memory that a launch needs, 256-byte aligned.
  std::size_t (*workspace_bytes)(DType output, const FusedArguments& arguments);
  cudaError_t (*launch)(DType output, const FusedArguments& arguments, void* workspace,
                        cudaStream_t stream);
  double time = 0;      ///< time of a tile, relative to other shapes of its generation
  bool skinny = false;  ///< only for at most tile_m rows: the kernel of skinny.cu
  /// The committed record of a GPU of the variant's generation on which the results were right
  /// (gemm/cuda/seen.hpp). Empty if there is no such record.
  std::string_view seen = {};
  /// Whether nothing in the kernel can hang: it has no cluster, and no barrier that waits for
  /// another thread block or for a copy. Then it may be tried in this process (trial.hpp).
  bool cannot_hang = false;
};

// The variant for few rows, for all generations, which skinny.cu defines.
extern const FusedVariant fused_skinny;

/// The variants of this build for a compute capability (90 is 9.0) and this much shared memory per
/// block. Code for 8.0 runs on all of 8.x and code for 12.0 on all of 12.x. Code for 9.0 or 10.0
/// runs on no other version. If there are no variants, `why_none` says why.
std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::size_t shared_bytes_per_block,
                                             std::string_view& why_none) noexcept;

/// The variants whose kernels rotate d; empty if there are none. A tuner neither measures nor
/// validates them: only those that a record has seen run.
std::span<const FusedVariant> rotating_variants(int compute_capability,
                                                std::size_t shared_bytes_per_block) noexcept;

/// The variants compiled for a generation. 12.x has the kernels of 8.x.
std::span<const FusedVariant> built_for_sm80(std::string_view& why_none) noexcept;
std::span<const FusedVariant> built_for_sm90(std::string_view& why_none) noexcept;
std::span<const FusedVariant> built_for_sm100(std::string_view& why_none) noexcept;
std::span<const FusedVariant> built_for_sm120(std::string_view& why_none) noexcept;
std::span<const FusedVariant> rotating_built_for_sm90(std::string_view& why_none) noexcept;

}  // namespace switchback::products::cuda
