// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "gemm/blockwise/cuda/engines.hpp"
#include "gemm/cuda/seen.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise::cuda {

namespace {

std::string_view available(const ContextState&) {
  return {};
}

// Unlike the fused products, this engine runs by default without a validation on the machine. Its
// kernel uses nothing that depends on the machine: no copy descriptor that a driver encodes, no
// cluster, no barrier between thread blocks. Every device from 8.0 on has its instructions: a
// product of 32 codes, loads of operands from shared memory and a copy to it (7.5 needs four
// instructions for the product). The fragments of these instructions are documented lane by lane,
// and the emulated device executes them in that way. gpu-check compares the bits of the results
// with those of the reference.
constexpr Engine mma_engine = {.id = EngineId::mma,
                               .name = "mma",
                               .unavailable = available,
                               .unsupported = mma_unsupported,
                               .run = run_mma};

std::string_view wgmma_unavailable([[maybe_unused]] const ContextState& state) {
#if defined(SWITCHBACK_CUDA_EMULATED) || defined(SWITCHBACK_HAVE_BLOCKWISE_WGMMA)
  if (core::cuda::runtime(state).compute_capability() != 90)
    return "its kernels are for compute capability 9.0";
  return {};
#else
  return "this build has no kernels for compute capability 9.0a";
#endif
}

// The warps of this engine's kernels wait for copies and for each other, and its operands are read
// through descriptors. The emulated device implements only what the documentation says about these,
// so only a GPU can tell whether the kernels are right. An H200 ran all of them: every tile and
// block size, each with results in f32, f16 and bf16.
constexpr Engine wgmma_engine = {.id = EngineId::wgmma,
                                 .name = "wgmma",
                                 .needs_trust = true,
                                 .seen = products::seen_on_h200,
                                 .unavailable = wgmma_unavailable,
                                 .unsupported = wgmma_unsupported,
                                 .tiles = wgmma_tiles,
                                 .run = run_wgmma};

constexpr Engine dp4a_engine = {
    .id = EngineId::dp4a, .name = "dp4a", .unavailable = available, .run = run_dp4a};

}  // namespace

BlockwiseArguments arguments_of(const BlockwiseProblem& p, const BlockwiseOperands& o) {
  return {o.a,
          o.b,
          o.absmax_a,
          o.absmax_b,
          o.d,
          p.n,
          p.k,
          (p.m + 63) / 64 * 64,
          p.blocks(),
          p.block_rows,
          blockwise_superblock_rows / p.block_rows,
          p.stride_a,
          p.stride_b,
          p.stride_d,
          p.accumulate,
          o.block_groups,
          std::max<std::int64_t>(p.groups, 1)};
}

void run_dp4a(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig&,
              const BlockwiseOperands& o) {
  core::cuda::Runtime& device = core::cuda::runtime(state);
  if (device.is_dry_run()) return;
  const core::cuda::CurrentDevice current(device.index());
  core::cuda::check(launch_blockwise(p.output, arguments_of(p, o), device.cuda_stream()),
                    "kernel blockwise");
}

std::span<const Engine* const> engines() noexcept {
  // The engines in order of preference; the last one accepts every problem.
  static constexpr std::array<const Engine*, 3> all = {&wgmma_engine, &mma_engine, &dp4a_engine};
  return all;
}

}  // namespace switchback::blockwise::cuda
