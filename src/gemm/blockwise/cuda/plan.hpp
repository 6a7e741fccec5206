// SPDX-License-Identifier: Apache-2.0
// Engine zone: how a device with tensor cores computes a blockwise product: in which tiles, in how
// many blocks, and which block computes which superblock.
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
  int blocks;  ///< blocks that fit on a multiprocessor
  std::size_t shared_bytes;
  /// The time that a multiprocessor needs for one step of one block. Only ratios matter.
  double time;
};

struct Plan {
  std::size_t tile;           ///< index of the choice; choices.size(): none fits the device
  std::int64_t down, across;  ///< tiles
  std::int64_t parts;         ///< if more than one: superblocks that different blocks compute;
                              ///< 1 if there are groups
  std::int64_t jobs, blocks;
  std::int64_t slots;  ///< f32 tiles that the kernel keeps in memory
};

/// The fastest plan for a d of `rows` by `columns`, in the orientation of the tiles, estimated by
/// waves of blocks. Parts cost a store and a load of their sums and a second launch.
Plan plan_of(const BlockwiseProblem& problem, std::int64_t rows, std::int64_t columns,
             const core::DeviceInfo& device, std::span<const TileChoice> choices) noexcept;

/// For the tensor-core kernels, which store `store_bytes` of d at once if d's alignment allows it.
TileArguments arguments_of(const Plan& plan, const BlockwiseProblem& problem,
                           const BlockwiseOperands& operands, float* slots,
                           std::size_t store_bytes);

}  // namespace switchback::blockwise::cuda
