// SPDX-License-Identifier: Apache-2.0
// Engine zone: the functions that launch the CUDA kernels of the blockwise product.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/cuda/tensor_map.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "switchback/types.hpp"

namespace switchback::blockwise::cuda {

/// The arguments of a kernel for d[n,k] (+)= a[n,m] · b[k,m]ᵀ in blocks of block_rows codes along
/// m, at any stride and alignment. With groups, d is [groups · n,k], and each group multiplies its
/// own blocks.
struct BlockwiseArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  const float* absmax_a;  ///< [blocks,n]
  const float* absmax_b;  ///< [blocks,k]
  void* d;
  std::int64_t n, k;
  std::int64_t m;  ///< codes of a row that are multiplied; the remaining codes are 0
  std::int64_t blocks, block_rows, superblock;  ///< superblock: its number of blocks
  std::int64_t a_stride, b_stride, d_stride;
  bool accumulate;
  const BlockGroup* block_groups;  ///< null: the product has no groups
  std::int64_t groups;             ///< number of groups; 1 without groups
};
cudaError_t launch_blockwise(DType output, const BlockwiseArguments& arguments,
                             cudaStream_t stream);

/// A square tile of d that one thread block of the mma kernel computes.
struct MmaTile {
  int side;
  int blocks;  ///< thread blocks per multiprocessor
  std::size_t shared_bytes;

  /// The number of elements of a tile of d.
  [[nodiscard]] constexpr std::int64_t floats() const noexcept { return std::int64_t{side} * side; }
};
inline constexpr MmaTile mma_large = {128, 1, std::size_t{67} << 10};
inline constexpr MmaTile mma_small = {64, 3, (std::size_t{25} << 10) + 512};

/// The arguments of the tensor-core kernels: a product and its division into tiles of d.
struct TileArguments {
  BlockwiseArguments product;
  /// Global memory for f32 tiles, which hold sums of superblocks. If parts > 1, each job has a
  /// tile. Otherwise each thread block has one, if there are several superblocks.
  float* slots;
  unsigned down, across, tiles;  ///< numbers of tiles of d: rows, columns, all
  unsigned parts;  ///< if above 1: number of superblocks, which different thread blocks compute
  unsigned jobs;   ///< tiles · parts; with groups, where parts is 1: tiles · groups
  bool aligned;    ///< whether d and its stride are multiples of the bytes that a store writes
};

/// Launches the mma kernel. Requires a, b and their strides at multiples of 16 bytes, m a multiple
/// of 64, and d at a multiple of its elements' size. The kernel stores 16 bytes at once.
cudaError_t launch_blockwise_mma(DType output, const MmaTile& tile, const TileArguments& arguments,
                                 unsigned blocks, cudaStream_t stream);

inline constexpr int wgmma_tile_rows = 128;
/// A tile of the wgmma kernel (for 9.0a): wgmma_tile_rows rows of b and `columns` rows of a. A
/// multiprocessor runs one thread block, and so one tile, at a time.
struct WgmmaTile {
  int columns;
  std::size_t shared_bytes;
  /// The number of elements of a tile of d.
  [[nodiscard]] constexpr std::int64_t floats() const noexcept {
    return std::int64_t{wgmma_tile_rows} * columns;
  }
};
/// The wide tile, for block_rows of 128 or 256.
inline constexpr WgmmaTile wgmma_wide = {256, 204416};
/// The square tile, for block_rows of 256 or more.
inline constexpr WgmmaTile wgmma_square = {128, 201888};

/// The descriptors (TMA) of the codes of a and b for the wgmma kernel. It copies boxes of
/// tile.columns rows of a and of wgmma_tile_rows rows of b.
struct WgmmaOperands {
  core::cuda::TensorMap a, b;
};
struct WgmmaLaunch {
  unsigned blocks;
  bool overlaps;  ///< whether the second kernel may begin early, see launch_behind
  cudaStream_t stream;
};
/// Launches the wgmma kernel. Requires a build with code for 9.0a, and a product without groups.
/// Operands are as for launch_blockwise_mma(), and scales at multiples of 4 bytes. `down` counts
/// tiles along the rows of b, `across` along the rows of a. The kernel stores two elements at once.
cudaError_t launch_blockwise_wgmma(DType output, const WgmmaTile& tile, const WgmmaOperands& codes,
                                   const TileArguments& arguments, const WgmmaLaunch& how);

}  // namespace switchback::blockwise::cuda
