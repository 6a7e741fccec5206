// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/cuda/plan.hpp"

#include <algorithm>
#include <limits>

#include "gemm/blockwise/cuda/engines.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise::cuda {

Plan plan_of(const BlockwiseProblem& p, std::int64_t rows, std::int64_t columns,
             const core::DeviceInfo& device, std::span<const TileChoice> choices) noexcept {
  constexpr std::int64_t most_part_bytes = std::int64_t{64} << 20;
  constexpr double cost_of_parts = 1.15;
  const std::int64_t multiprocessors = std::max(device.multiprocessors, 1);
  const std::int64_t groups = std::max<std::int64_t>(p.groups, 1);
  // A bound, since the host does not know how long the longest group is: one group may have all
  // rows.
  const std::int64_t superblocks = divide_up(p.m, blockwise_superblock_rows);
  Plan best{};
  best.tile = choices.size();
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const TileChoice& tile = choices[i];
    if (tile.shared_bytes > device.shared_bytes_per_block) continue;
    const std::int64_t down = divide_up(rows, tile.rows);
    const std::int64_t across = divide_up(columns, tile.columns);
    const std::int64_t tile_bytes =
        std::int64_t{tile.rows} * tile.columns * static_cast<std::int64_t>(sizeof(float));
    const auto consider = [&](std::int64_t parts) {
      const std::int64_t jobs = down * across * groups * parts;
      const std::int64_t rows_of_job = parts > 1 ? blockwise_superblock_rows : p.m;
      const double cost = static_cast<double>(divide_up(jobs, multiprocessors)) *
                          static_cast<double>(rows_of_job) * tile.time *
                          (parts > 1 ? cost_of_parts : 1.0);
      if (cost >= least) return;
      least = cost;
      const std::int64_t blocks = std::min(jobs, multiprocessors * tile.blocks);
      const std::int64_t slots = parts > 1 ? jobs : superblocks > 1 ? blocks : 0;
      best = {i, down, across, parts, jobs, blocks, slots};
    };
    consider(1);
    if (p.groups == 0 && superblocks > 1 &&
        down * across <= most_part_bytes / tile_bytes / superblocks)
      consider(superblocks);
  }
  return best;
}

TileArguments arguments_of(const Plan& plan, const BlockwiseProblem& p, const BlockwiseOperands& o,
                           float* slots, std::size_t store_bytes) {
  const auto number = [](std::int64_t n) { return static_cast<unsigned>(n); };
  const std::size_t stride_bytes =
      static_cast<std::size_t>(p.stride_d) * dtype_size_bytes(p.output);
  return {arguments_of(p, o),
          slots,
          number(plan.down),
          number(plan.across),
          number(plan.down * plan.across),
          number(plan.parts),
          number(plan.jobs),
          is_multiple(o.d, store_bytes) && stride_bytes % store_bytes == 0};
}

}  // namespace switchback::blockwise::cuda
