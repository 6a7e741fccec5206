// SPDX-License-Identifier: Apache-2.0
// Engine zone: runs the blockwise int8 product on tensor cores with mma.sync.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "gemm/blockwise/cuda/engines.hpp"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/cuda/plan.hpp"

namespace switchback::blockwise::cuda {

namespace {

constexpr std::int64_t piece_bytes = 16;

bool takes(const BlockwiseProblem& p, const BlockwiseOperands& o) {
  return mma_unsupported(p).empty() && is_multiple(o.a, piece_bytes) &&
         is_multiple(o.b, piece_bytes) && is_multiple(o.d, dtype_size_bytes(p.output));
}

// The tiles with their relative times. Four small tiles cover one large tile and take a quarter
// more of a multiprocessor's time, because their operands are read once more from the L2 cache.
// (Estimated from counts of instructions and bytes.)
constexpr const MmaTile* tiles[] = {&mma_large, &mma_small};
constexpr TileChoice choice_of(const MmaTile& tile, double time) {
  return {tile.side, tile.side, tile.blocks, tile.shared_bytes, time};
}
constexpr TileChoice choices[] = {choice_of(mma_large, 4.0), choice_of(mma_small, 1.25)};

}  // namespace

// The limits follow from the kernel's integers: indices of rows are int; counts of 16-byte pieces
// and of jobs have 32 bits.
std::string_view mma_unsupported(const BlockwiseProblem& p) {
  constexpr std::int64_t most = std::numeric_limits<int>::max() - mma_large.side;
  constexpr std::int64_t most_codes = std::int64_t{1} << 36;
  constexpr std::int64_t most_tiles = std::int64_t{1} << 30;
  if (p.alignment == 1 || p.stride_a % piece_bytes != 0 || p.stride_b % piece_bytes != 0)
    return "addresses and strides of its operands must be multiples of 16 bytes";
  const std::int64_t n = std::max<std::int64_t>(p.n, 1);
  const std::int64_t k = std::max<std::int64_t>(p.k, 1);
  const std::int64_t groups = std::max<std::int64_t>(p.groups, 1);
  if (n > most / groups || k > most || p.m >= most_codes || p.stride_a > most_codes / n ||
      p.stride_b > most_codes / k ||
      divide_up(n, mma_small.side) > most_tiles / groups / divide_up(k, mma_small.side))
    return "the problem has too many rows, codes or tiles";
  return {};
}

void run_mma(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig& config,
             const BlockwiseOperands& o) {
  if (!takes(p, o)) return run_dp4a(state, p, config, o);
  core::cuda::Runtime& device = core::cuda::runtime(state);
  const Plan plan = plan_of(p, p.n, p.k, device.info(), choices);
  const MmaTile& tile = *tiles[plan.tile];
  core::Workspace::Frame frame(state.workspace);
  float* const slots = plan.slots > 0 ? frame.take<float>(plan.slots * tile.floats()) : nullptr;
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  const core::cuda::CurrentDevice current(device.index());
  const TileArguments arguments = arguments_of(plan, p, o, slots, piece_bytes);
  core::cuda::check(launch_blockwise_mma(p.output, tile, arguments,
                                         static_cast<unsigned>(plan.blocks), device.cuda_stream()),
                    "kernel blockwise_mma");
}

}  // namespace switchback::blockwise::cuda
