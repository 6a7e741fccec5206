// SPDX-License-Identifier: Apache-2.0
// Engine zone: runs the blockwise int8 product on the tensor cores of 9.0 with wgmma.
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "core/cuda/tensor_map.hpp"
#include "gemm/blockwise/cuda/engines.hpp"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/cuda/plan.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise::cuda {

// The kernel's jobs are tiles of one product, so it supports no groups. Indices of rows and codes
// are coordinates of the copy engine (TMA), which have 31 bits.
std::string_view wgmma_unsupported(const BlockwiseProblem& p) {
  if (p.groups > 0) return "it does not support groups";
  if (p.padded_m > std::numeric_limits<int>::max() - blockwise_superblock_rows)
    return "the problem has too many codes in a row";
  return mma_unsupported(p);
}

#if defined(SWITCHBACK_CUDA_EMULATED) || defined(SWITCHBACK_HAVE_BLOCKWISE_WGMMA)

namespace {

constexpr std::size_t operand_bytes = 16;

bool takes(const BlockwiseProblem& p, const BlockwiseOperands& o) {
  return wgmma_unsupported(p).empty() && is_multiple(o.a, operand_bytes) &&
         is_multiple(o.b, operand_bytes) && is_multiple(o.absmax_a, sizeof(float)) &&
         is_multiple(o.absmax_b, sizeof(float)) && is_multiple(o.d, dtype_size_bytes(p.output));
}

// The tiles with their relative times. On an H200 a wide tile took 0.92 of the time of the two
// square tiles that it replaces (1205 and 1107 TOPS at 8192x4096x4096 in blocks of 256 rows). Wide
// tiles are for blocks of up to 256 rows, whose codes fit twice into the ring of stages. Square
// tiles need at least two stages per block.
constexpr TileChoice choice_of(const WgmmaTile& tile, double time) {
  return {wgmma_tile_rows, tile.columns, 1, tile.shared_bytes, time};
}
constexpr std::array<TileChoice, 2> choices = {choice_of(wgmma_wide, 1.84),
                                               choice_of(wgmma_square, 1.0)};
std::span<const TileChoice> choices_for(const BlockwiseProblem& p) {
  const std::span<const TileChoice> all = choices;
  return p.block_rows < 256 ? all.first(1) : p.block_rows > 256 ? all.last(1) : all;
}

}  // namespace

Tiles wgmma_tiles(const BlockwiseProblem& p, const ContextState& state) noexcept {
  const core::DeviceInfo& device = core::cuda::runtime(state).info();
  const std::span<const TileChoice> possible = choices_for(p);
  const std::size_t best = plan_of(p, p.k, p.n, device, possible).tile;
  if (best == possible.size()) return {};
  Tiles tiles = {{possible[best].columns}, 1};
  for (const TileChoice& tile : possible)
    if (tile.columns != tiles.tile_n.front()) tiles.tile_n[tiles.count++] = tile.columns;
  return tiles;
}

void run_wgmma(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig& config,
               const BlockwiseOperands& o) {
  if (!takes(p, o)) return run_dp4a(state, p, config, o);
  core::cuda::Runtime& device = core::cuda::runtime(state);
  std::span<const TileChoice> possible = choices_for(p);
  if (config.tile_n != 0)
    possible = possible.subspan(possible.front().columns == config.tile_n ? 0 : 1, 1);
  const Plan plan = plan_of(p, p.k, p.n, device.info(), possible);
  if (plan.tile == possible.size()) return run_dp4a(state, p, config, o);
  const WgmmaTile& tile =
      possible[plan.tile].columns == wgmma_wide.columns ? wgmma_wide : wgmma_square;
  core::Workspace::Frame frame(state.workspace);
  float* const slots = plan.slots > 0 ? frame.take<float>(plan.slots * tile.floats()) : nullptr;
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  const core::cuda::CurrentDevice current(device.index());
  const TileArguments arguments = arguments_of(plan, p, o, slots, 2 * dtype_size_bytes(p.output));
  // Codes from the product's m on are not read: the copy engine (TMA) gives 0 outside of the
  // matrix.
  const std::int64_t codes = arguments.product.m;
  const auto map_of = [&](const std::int8_t* data, std::int64_t rows, std::int64_t stride,
                          int box_rows) {
    return core::cuda::tensor_map(data, rows, codes, stride, box_rows);
  };
  const WgmmaOperands operands = {map_of(o.a, p.n, p.stride_a, tile.columns),
                                  map_of(o.b, p.k, p.stride_b, wgmma_tile_rows)};
  core::cuda::check(launch_blockwise_wgmma(p.output, tile, operands, arguments,
                                           {static_cast<unsigned>(plan.blocks), device.overlaps(),
                                            device.cuda_stream()}),
                    "kernel blockwise_wgmma");
}

#else
// Builds without the kernel need these functions too; the engine is then not available.
Tiles wgmma_tiles(const BlockwiseProblem&, const ContextState&) noexcept {
  return {};
}
void run_wgmma(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig& config,
               const BlockwiseOperands& o) {
  run_dp4a(state, p, config, o);
}
#endif

}  // namespace switchback::blockwise::cuda
