// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/engine.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise::SWITCHBACK_CUDA_NS {

namespace {

std::string_view available(const ContextState&) {
  return {};
}

void run(ContextState& state, const BlockwiseProblem& p, const BlockwiseOperands& o) {
  core::SWITCHBACK_CUDA_NS::Runtime& device = core::SWITCHBACK_CUDA_NS::runtime(state);
  if (device.rehearsing()) return;
  const core::SWITCHBACK_CUDA_NS::CurrentDevice current(device.index());
  // Of a step of the kernel the whole is multiplied, so that its words are loaded whole, too.
  const std::int64_t m = (p.m + 63) / 64 * 64;
  const BlockwiseArguments arguments = {o.a,
                                        o.b,
                                        o.absmax_a,
                                        o.absmax_b,
                                        o.d,
                                        p.n,
                                        p.k,
                                        m,
                                        p.blocks(),
                                        p.block_rows,
                                        blockwise_superblock_rows / p.block_rows,
                                        p.stride_a,
                                        p.stride_b,
                                        p.stride_d,
                                        p.accumulate};
  core::SWITCHBACK_CUDA_NS::check(launch_blockwise(p.output, arguments, device.cuda_stream()),
                                  "kernel blockwise");
}

constexpr Engine dp4a_engine = {
    .id = EngineId::dp4a, .name = "dp4a", .unavailable = available, .run = run};

}  // namespace

std::span<const Engine* const> engines() noexcept {
  static constexpr std::array<const Engine*, 1> all = {&dp4a_engine};
  return all;
}

}  // namespace switchback::blockwise::SWITCHBACK_CUDA_NS
