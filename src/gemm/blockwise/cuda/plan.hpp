// SPDX-License-Identifier: Apache-2.0
// Engine zone: how a GPU with tensor cores computes a blockwise product: in which tiles, in how
// many thread blocks, and which thread block computes which superblock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/cuda/api.hpp"
#include "core/device.hpp"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/problem.hpp"

namespace switchback::blockwise::cuda {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept {
  return (a + b - 1) / b;
}

inline bool is_multiple(const void* address, std::size_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// A tile of d that a kernel can compute.
struct TileChoice {
  int rows, columns;
  int blocks;  ///< thread blocks that fit on a multiprocessor
  std::size_t shared_bytes;
  /// The time that a multiprocessor needs for one step of one thread block, in any unit. Only
  /// ratios between tiles matter.
  double time;
};

struct Plan {
  /// The index of the tile in `choices`; choices.size(): none fits the device
  std::size_t tile;
  std::int64_t down, across;  ///< tiles in a column and in a row of d
  /// If above 1: the number of superblocks, which different thread blocks compute. 1 if there are
  /// groups.
  std::int64_t parts;
  std::int64_t jobs, blocks;
  std::int64_t slots;  ///< f32 tiles that the kernel keeps in global memory
};

/// The plan that is estimated to be the fastest for a d of `rows` by `columns`, in the orientation
/// of the tiles. The estimate counts waves of thread blocks. If superblocks are computed in
/// parallel, their sums cost a store, a load and a second launch.
Plan plan_of(const BlockwiseProblem& problem, std::int64_t rows, std::int64_t columns,
             const core::DeviceInfo& device, std::span<const TileChoice> choices) noexcept;

/// The arguments of the tensor-core kernels, which store `store_bytes` of d at once if d's
/// alignment allows it.
TileArguments arguments_of(const Plan& plan, const BlockwiseProblem& problem,
                           const BlockwiseOperands& operands, float* slots,
                           std::size_t store_bytes);

}  // namespace switchback::blockwise::cuda
