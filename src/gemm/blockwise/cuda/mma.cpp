// SPDX-License-Identifier: Apache-2.0
// Engine zone: the blockwise product on tensor cores: which tile, how many blocks, and who computes
// which superblock.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "gemm/blockwise/cuda/engines.hpp"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise::SWITCHBACK_CUDA_NS {

namespace {

constexpr std::int64_t step_codes = 64;
constexpr std::int64_t piece_bytes = 16;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool is_multiple(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

bool takes(const BlockwiseProblem& p, const BlockwiseOperands& o) {
  return mma_rejects(p).empty() && is_multiple(o.a, piece_bytes) && is_multiple(o.b, piece_bytes) &&
         is_multiple(o.d, dtype_size_bytes(p.output));
}

struct Plan {
  const MmaTile* tile;
  std::int64_t parts, jobs, blocks, slots;
};

// All of a multiprocessor's time for a step of 64 codes is as much for four small tiles as for one
// large one and a quarter more, whose operands come from the L2 cache once less. Parts cost a store
// and a load of their sums and a second launch. (From counts of instructions and bytes; only the
// order matters.)
Plan plan_of(const BlockwiseProblem& p, const core::DeviceInfo& info,
             std::initializer_list<const MmaTile*> tiles_to_choose_from) {
  constexpr std::int64_t most_part_bytes = std::int64_t{64} << 20;
  const std::int64_t multiprocessors = std::max(info.multiprocessors, 1);
  const std::int64_t superblocks = divide_up(p.m, blockwise_superblock_rows);
  const std::int64_t steps = divide_up(p.m, step_codes);
  Plan best{};
  double least = std::numeric_limits<double>::infinity();
  for (const MmaTile* tile : tiles_to_choose_from) {
    if (tile->shared_bytes > info.shared_bytes_per_block) continue;
    const double cost_of_step = tile == &mma_small ? 1.25 : 4.0;
    const std::int64_t tiles = divide_up(p.n, tile->side) * divide_up(p.k, tile->side);
    const auto consider = [&](std::int64_t parts) {
      const std::int64_t jobs = tiles * parts;
      const std::int64_t steps_of_job = parts > 1 ? blockwise_superblock_rows / step_codes : steps;
      const double cost = static_cast<double>(divide_up(jobs, multiprocessors) * steps_of_job) *
                          cost_of_step * (parts > 1 ? 1.15 : 1.0);
      if (cost >= least) return;
      least = cost;
      const std::int64_t blocks = std::min(jobs, multiprocessors * tile->blocks);
      best = {tile, parts, jobs, blocks, parts > 1 ? jobs : superblocks > 1 ? blocks : 0};
    };
    consider(1);
    if (superblocks > 1 &&
        tiles <= most_part_bytes / (tile->floats() * std::int64_t{sizeof(float)}) / superblocks)
      consider(superblocks);
  }
  return best;
}

// `launch_plan` queues the kernels of a plan.
template <class LaunchPlan>
void run(ContextState& state, const BlockwiseProblem& p, const BlockwiseOperands& o,
         std::initializer_list<const MmaTile*> tiles, LaunchPlan launch_plan) {
  if (!takes(p, o)) return run_dp4a(state, p, o);
  core::SWITCHBACK_CUDA_NS::Runtime& device = core::SWITCHBACK_CUDA_NS::runtime(state);
  const Plan plan = plan_of(p, device.info(), tiles);
  core::Workspace::Frame frame(state.workspace);
  float* const slots =
      plan.slots > 0 ? frame.take<float>(plan.slots * plan.tile->floats()) : nullptr;
  // All memory has been taken: from here on work is queued.
  if (device.rehearsing()) return;
  const core::SWITCHBACK_CUDA_NS::CurrentDevice current(device.index());
  const auto number = [](std::int64_t n) { return static_cast<unsigned>(n); };
  const std::int64_t down = divide_up(p.n, plan.tile->side);
  const std::int64_t across = divide_up(p.k, plan.tile->side);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  const MmaArguments arguments = {
      arguments_of(p, o),
      slots,
      number(down),
      number(across),
      number(down * across),
      number(plan.parts),
      number(plan.jobs),
      is_multiple(o.d, piece_bytes) && p.stride_d * element % piece_bytes == 0};
  core::SWITCHBACK_CUDA_NS::check(
      launch_plan(*plan.tile, arguments, number(plan.blocks), device.cuda_stream()),
      "kernel of a blockwise product");
}

}  // namespace

// Indices of rows are int, counts of pieces and of jobs 32 bits.
std::string_view mma_rejects(const BlockwiseProblem& p) {
  constexpr std::int64_t most = std::numeric_limits<int>::max() - mma_large.side;
  constexpr std::int64_t most_codes = std::int64_t{1} << 36;
  constexpr std::int64_t most_tiles = std::int64_t{1} << 30;
  if (p.alignment == 1 || p.stride_a % piece_bytes != 0 || p.stride_b % piece_bytes != 0)
    return "addresses and strides of its operands must be multiples of 16";
  const std::int64_t n = std::max<std::int64_t>(p.n, 1);
  const std::int64_t k = std::max<std::int64_t>(p.k, 1);
  if (n > most || k > most || p.m >= most_codes || p.stride_a > most_codes / n ||
      p.stride_b > most_codes / k ||
      divide_up(n, mma_small.side) > most_tiles / divide_up(k, mma_small.side))
    return "it has too many rows, codes or tiles";
  return {};
}

void run_mma(ContextState& state, const BlockwiseProblem& p, const BlockwiseOperands& o) {
  run(state, p, o, {&mma_large, &mma_small},
      [&](const MmaTile& tile, const MmaArguments& a, unsigned blocks, cudaStream_t stream) {
        return launch_blockwise_mma(p.output, tile, a, blocks, stream);
      });
}

#if defined(SWITCHBACK_CUDA_EMULATED) || defined(SWITCHBACK_HAVE_BLOCKWISE_WGMMA)
void run_wgmma(ContextState& state, const BlockwiseProblem& p, const BlockwiseOperands& o) {
  run(state, p, o, {&wgmma_tile},
      [&](const MmaTile&, const MmaArguments& a, unsigned blocks, cudaStream_t stream) {
        return launch_blockwise_wgmma(p.output, a, blocks, stream);
      });
}
#else
// Not available.
void run_wgmma(ContextState& state, const BlockwiseProblem& p, const BlockwiseOperands& o) {
  run_mma(state, p, o);
}
#endif

}  // namespace switchback::blockwise::SWITCHBACK_CUDA_NS
