// SPDX-License-Identifier: Apache-2.0
// Engine zone: how a device with tensor cores computes a blockwise product: in which tiles, in how
// many blocks, and who computes which superblock.
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
  int blocks;  ///< that a multiprocessor has room for
  std::size_t shared_bytes;
  /// The time that a multiprocessor needs for one block's codes of a step; only ratios matter.
  double time;
};

struct Plan {
  std::size_t tile;           ///< its number; that of the choices: none fits the device
  std::int64_t down, across;  ///< tiles
  std::int64_t parts;         ///< more than one: superblocks that different blocks compute
  std::int64_t jobs, blocks;
  std::int64_t slots;  ///< f32 tiles that the kernel keeps in memory
};

/// Of d with `rows` and `columns` as the tiles have them. The shortest by waves of blocks; parts
/// cost a store and a load of their sums and a second launch.
Plan plan_of(const BlockwiseProblem& problem, std::int64_t rows, std::int64_t columns,
             const core::DeviceInfo& device, std::span<const TileChoice> choices) noexcept;

/// For the kernels on tensor cores, which store `store_bytes` of d at once where it allows that.
TileArguments arguments_of(const Plan& plan, const BlockwiseProblem& problem,
                           const BlockwiseOperands& operands, float* slots,
                           std::size_t store_bytes);

}  // namespace switchback::blockwise::cuda
