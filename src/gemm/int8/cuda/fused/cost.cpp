// SPDX-License-Identifier: Apache-2.0
// The costs of tiles, derived from what the hardware is documented to do; none was measured.
//
// 9.0: 4096 int8 products a clock, so a tile takes rows · columns / 4096 clocks for each element of
// the inner dimension. Tensor cores and the copies from memory together move 128 bytes of shared
// memory a clock: a 128x256 tile needs all of them, 128x192 1.09 times, 256x128 1.125 times,
// 128x128 and 64x256 1.25 times, 64x128 1.5 times, 64x64 twice as many. Tiles of two groups of
// warps that work together end with an epilogue of about 3000 clocks; in the others it overlaps the
// next tile.
//
// 10.0: twice the products (with 64 rows as many as 9.0), and as much shared memory a clock, which
// bounds all tiles but the largest of a pair: of a pair's columns each block copies and reads half.
// An epilogue works beside the next tile, for about ten clocks a column.
//
// 8.0: 2048 products a clock; 8.6, 8.9 and 12.x half as many, which changes no order. Small tiles
// take longer by what they reread of shared memory, and by the barriers of shorter stages. Two
// blocks of 128x128 hide each other's epilogue.
//
// Blocks that share tiles are all busy, but have sums of 64 KiB (128x128) or 16 KiB to write and
// read at the end, and a memset before.
//
// The L2 cache gives about 36 bytes a clock to each multiprocessor if all ask for them. Blocks of a
// cluster read what they share once.
#include "gemm/int8/cuda/fused/cost.hpp"

#include <algorithm>
#include <array>

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

struct TileCost {
  int rows, columns;
  int depth;            ///< of a stage, where the variants differ in it; 0: any
  double clocks_per_k;  ///< for each element of the inner dimension
  double clocks;        ///< and beside them
  double least = 0;     ///< clocks before the next tile can be as far
};

constexpr double l2_bytes_per_clock = 36;

constexpr std::array costs_of_sm90 = {
    TileCost{128, 256, 0, 8.0, 3500}, TileCost{256, 128, 0, 9.0, 3500},
    TileCost{128, 192, 0, 6.5, 1000}, TileCost{128, 128, 0, 5.0, 900},
    TileCost{64, 256, 0, 5.0, 900},   TileCost{64, 128, 0, 3.0, 800},
    TileCost{64, 64, 256, 2.0, 700},  TileCost{16, 64, 256, 1.1, 600}};

constexpr std::array stream_k_costs_of_sm90 = {TileCost{128, 128, 0, 5.0, 11000},
                                               TileCost{32, 128, 0, 2.2, 6500}};

constexpr std::array costs_of_sm80 = {
    TileCost{256, 128, 128, 16.4, 3500}, TileCost{128, 256, 128, 16.4, 3500},
    TileCost{256, 128, 64, 16.8, 3500},  TileCost{128, 256, 64, 16.8, 3500},
    TileCost{128, 128, 64, 8.4, 900},    TileCost{64, 256, 64, 9.2, 1200},
    TileCost{64, 128, 64, 5.2, 800},     TileCost{64, 128, 128, 5.0, 900},
    TileCost{64, 64, 128, 2.9, 700},     TileCost{32, 64, 128, 1.9, 600},
    TileCost{16, 64, 128, 1.4, 500}};

TileCost cost_of_sm100(const FusedVariant& v) noexcept {
  const double rows = v.tile_m, columns = v.tile_n;
  const double products = std::max(rows, 128.0) * columns / 8192;
  const double shared = 2 * (rows + columns / v.cluster_m) / 128;
  return {v.tile_m, v.tile_n, 0, std::max(products, shared), 900, 10 * columns};
}

// What no table has is taken to be worse than what it has.
TileCost cost_of(const FusedVariant& v, int compute_capability) noexcept {
  const bool sm90 = compute_capability == 90;
  const auto is_it = [&](const TileCost& cost) {
    return cost.rows == v.tile_m && cost.columns == v.tile_n &&
           (cost.depth == 0 || cost.depth == v.tile_k);
  };
  const auto find = [&](const auto& costs) {
    const auto* found = std::find_if(costs.begin(), costs.end(), is_it);
    const double clocks = static_cast<double>(v.tile_m) * v.tile_n / (sm90 ? 2500.0 : 1600.0);
    return found != costs.end() ? *found : TileCost{v.tile_m, v.tile_n, v.tile_k, clocks, 3000};
  };
  if (compute_capability == 100) return cost_of_sm100(v);
  if (v.stream_k) return find(stream_k_costs_of_sm90);
  return sm90 ? find(costs_of_sm90) : find(costs_of_sm80);
}

std::int64_t ceiling(std::int64_t a, std::int64_t b) noexcept {
  return (a + b - 1) / b;
}

}  // namespace

double fused_cost(const FusedVariant& variant, int compute_capability, int multiprocessors,
                  std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  const TileCost cost = cost_of(variant, compute_capability);
  // A cluster has all of its blocks, of which some may have nothing to do.
  const std::int64_t down = ceiling(m, variant.tile_m * variant.cluster_m) * variant.cluster_m;
  const std::int64_t across = ceiling(n, variant.tile_n * variant.cluster_n) * variant.cluster_n;
  const std::int64_t tiles = down * across;
  const std::int64_t all = std::max<std::int64_t>(1, multiprocessors);
  // Rows and columns that do not exist are not read.
  const double bytes =
      static_cast<double>(std::min<std::int64_t>(variant.tile_m, m)) / variant.cluster_n +
      static_cast<double>(std::min<std::int64_t>(variant.tile_n, n)) / variant.cluster_m;
  // Those that have no tile leave their share of the cache to the others.
  const double share = l2_bytes_per_clock * static_cast<double>(all) /
                       static_cast<double>(std::clamp<std::int64_t>(tiles, 1, all));
  const double clocks_per_tile =
      std::max(cost.least, static_cast<double>(k) * std::max(cost.clocks_per_k, bytes / share));
  if (variant.stream_k) {
    // Of less than a stage of 128 no block has its own.
    const double parts = std::max(1.0, static_cast<double>(k) / 128.0);
    const double busy = std::min(static_cast<double>(all), static_cast<double>(tiles) * parts);
    const double full =
        static_cast<double>(k) * std::max(cost.clocks_per_k, bytes / l2_bytes_per_clock);
    return full * static_cast<double>(tiles) / busy + cost.clocks;
  }
  return static_cast<double>(ceiling(tiles, all)) * (clocks_per_tile + cost.clocks);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
