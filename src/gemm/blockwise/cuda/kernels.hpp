// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launchers of the blockwise product.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/cuda/tensor_map.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "switchback/types.hpp"

namespace switchback::blockwise::cuda {

/// d[n,k] (+)= a[n,m] · b[k,m]ᵀ in blocks of block_rows codes along m, at any stride and alignment.
/// With groups: d[groups · n,k], each group from its own blocks.
struct BlockwiseArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  const float* absmax_a;  ///< [blocks,n]
  const float* absmax_b;  ///< [blocks,k]
  void* d;
  std::int64_t n, k;
  std::int64_t m;  ///< codes of a row that are multiplied; the remaining codes are 0
  std::int64_t blocks, block_rows, superblock;  ///< superblock: in blocks
  std::int64_t a_stride, b_stride, d_stride;
  bool accumulate;
  const BlockGroup* block_groups;  ///< null: no groups
  std::int64_t groups;             ///< 1 if there are none
};
cudaError_t launch_blockwise(DType output, const BlockwiseArguments& arguments,
                             cudaStream_t stream);

/// A square tile of d that one block of the tensor-core kernel computes.
struct MmaTile {
  int side;
  int blocks;  ///< blocks per multiprocessor
  std::size_t shared_bytes;

  /// The floats of a tile of d.
  [[nodiscard]] constexpr std::int64_t floats() const noexcept { return std::int64_t{side} * side; }
};
inline constexpr MmaTile mma_large = {128, 1, std::size_t{67} << 10};
inline constexpr MmaTile mma_small = {64, 3, (std::size_t{25} << 10) + 512};

/// A product in tiles of d, for the tensor-core kernels.
struct TileArguments {
  BlockwiseArguments product;
  /// f32 tiles in memory: one for each job if there are parts, or one for each block if there are
  /// several superblocks.
  float* slots;
  unsigned down, across, tiles;  ///< of d
  unsigned parts;  ///< if more than one: superblocks that different blocks compute, one each
  unsigned jobs;   ///< tiles · parts, or with groups, for which parts is 1: tiles · groups
  bool aligned;    ///< d and its stride are multiples of what the kernel stores at once
};

/// Requires a, b and their strides at multiples of 16 bytes, m a multiple of 64, and d at a
/// multiple of its elements' size. Stores 16 bytes at once.
cudaError_t launch_blockwise_mma(DType output, const MmaTile& tile, const TileArguments& arguments,
                                 unsigned blocks, cudaStream_t stream);

inline constexpr int wgmma_tile_rows = 128;
/// A tile of the kernel for 9.0a: wgmma_tile_rows rows of b and `columns` rows of a. A
/// multiprocessor runs one block of it.
struct WgmmaTile {
  int columns;
  std::size_t shared_bytes;
  /// The floats of a tile of d.
  [[nodiscard]] constexpr std::int64_t floats() const noexcept {
    return std::int64_t{wgmma_tile_rows} * columns;
  }
};
/// For blocks of 128 or 256 rows.
inline constexpr WgmmaTile wgmma_wide = {256, 204416};
/// For blocks of 256 rows or more.
inline constexpr WgmmaTile wgmma_square = {128, 201888};

/// The codes of a and b as the kernel for 9.0a copies them: boxes of tile.columns rows of a and of
/// wgmma_tile_rows rows of b.
struct WgmmaOperands {
  core::cuda::TensorMap a, b;
};
struct WgmmaLaunch {
  unsigned blocks;
  bool overlaps;  ///< see launch_behind
  cudaStream_t stream;
};
/// Only where there is code for 9.0a, and without groups. Operands as above, but scales at
/// multiples of 4 bytes. `down` counts rows of b, `across` rows of a. Stores two elements at once.
cudaError_t launch_blockwise_wgmma(DType output, const WgmmaTile& tile, const WgmmaOperands& codes,
                                   const TileArguments& arguments, const WgmmaLaunch& how);

}  // namespace switchback::blockwise::cuda
