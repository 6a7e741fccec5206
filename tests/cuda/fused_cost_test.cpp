// SPDX-License-Identifier: Apache-2.0
// Which fused kernel is the default: by how often the multiprocessors are filled, and by the cost
// of a tile. On an H200's 132 and an A100's 108 multiprocessors.
#include "gemm/int8/cuda/fused/cost.hpp"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>

#include <fmt/format.h>

namespace switchback::products::cuda_emulated {
namespace {

constexpr FusedVariant tile(int m, int n, int k, int cluster_m = 1, int cluster_n = 1) {
  return {m, n, k, cluster_m, cluster_n, 0, nullptr, nullptr};
}
constexpr std::array of_sm90 = {
    tile(128, 256, 128, 2, 1), tile(256, 128, 128, 2, 1), tile(128, 128, 128, 2, 1),
    tile(64, 128, 128),        tile(64, 256, 128),        tile(128, 256, 128, 1, 2),
    tile(128, 256, 128),       tile(256, 128, 128, 1, 2), tile(128, 128, 128, 1, 2),
    tile(128, 128, 128),       tile(128, 192, 128, 2, 1), tile(64, 128, 128, 2, 1),
    tile(64, 128, 128, 1, 4),  tile(64, 256, 128, 2, 1),  tile(64, 64, 256),
    tile(64, 64, 256, 1, 4),   tile(16, 64, 256)};
constexpr FusedVariant shared_tile(int m, int n) {
  FusedVariant variant = tile(m, n, 0);
  variant.stream_k = true;
  return variant;
}
constexpr std::array of_sm80 = {tile(128, 128, 64),  tile(256, 128, 64), tile(128, 256, 64),
                                tile(64, 128, 64),   tile(64, 256, 64),  tile(32, 64, 128),
                                tile(64, 128, 128),  tile(64, 64, 128),  tile(16, 64, 128),
                                tile(256, 128, 128), tile(128, 256, 128)};
constexpr std::array of_sm100 = {
    tile(128, 256, 0, 2, 1), tile(128, 128, 0, 2, 1), tile(128, 64, 0, 2, 1), tile(128, 256, 0),
    tile(128, 128, 0),       tile(128, 64, 0),        tile(64, 64, 0)};

std::string best(std::span<const FusedVariant> all, int capability, int multiprocessors,
                 std::int64_t m, std::int64_t n, std::int64_t k) {
  const FusedVariant* found = nullptr;
  double least = 0;
  for (const FusedVariant& variant : all) {
    const double cost = fused_cost(variant, capability, multiprocessors, m, n, k);
    EXPECT_GT(cost, 0);
    if (found == nullptr || cost < least) {
      found = &variant;
      least = cost;
    }
  }
  return fmt::format("{}x{} {}x{}", found->tile_m, found->tile_n, found->cluster_m,
                     found->cluster_n);
}

TEST(FusedCost, FewTilesAreSmallAndManyAreLarge) {
  const auto h200 = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return best(of_sm90, 90, 132, m, n, k);
  };
  EXPECT_EQ(h200(1, 4096, 4096), "16x64 1x1");
  EXPECT_EQ(h200(64, 8192, 2048), "64x64 1x4");
  EXPECT_EQ(h200(128, 2048, 2048), "64x64 1x1") << "large tiles would leave most of it idle";
  EXPECT_EQ(h200(65536, 8192, 2048), "128x192 2x1") << "hides its epilogue";
  EXPECT_EQ(h200(8192, 4096, 14336), "128x256 2x1");
  const auto a100 = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return best(of_sm80, 80, 108, m, n, k);
  };
  EXPECT_EQ(a100(1, 4096, 4096), "16x64 1x1");
  EXPECT_EQ(a100(65536, 8192, 2048), "128x128 1x1");
  const auto b200 = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return best(of_sm100, 100, 148, m, n, k);
  };
  EXPECT_EQ(b200(16, 4096, 4096), "64x64 1x1") << "half a pair would have no rows";
  EXPECT_EQ(b200(256, 4096, 4096), "128x128 2x1");
  EXPECT_EQ(b200(65536, 8192, 2048), "128x256 2x1");
  const auto rtx5090 = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return best(of_sm80, 120, 170, m, n, k);
  };
  EXPECT_EQ(rtx5090(1, 4096, 4096), "16x64 1x1");
  EXPECT_EQ(rtx5090(65536, 8192, 2048), "128x128 1x1");
}

// A cluster that is half empty costs as much as a full one.
TEST(FusedCost, ClustersAreWhole) {
  const auto cost = [](const FusedVariant& variant, std::int64_t m) {
    return fused_cost(variant, 90, 4, m, 256 * 4, 1024);
  };
  const FusedVariant pair = tile(128, 256, 128, 2, 1);
  EXPECT_EQ(cost(pair, 1), cost(pair, 256));
  EXPECT_LT(cost(pair, 256), cost(pair, 257));
  const FusedVariant single = tile(128, 256, 128);
  EXPECT_LT(cost(single, 128), cost(pair, 128));
}

// A tile that is in no table has a cost too, and more products cost more.
TEST(FusedCost, EveryTileHasOne) {
  for (const int capability : {80, 89, 90, 100, 120}) {
    const FusedVariant unknown = tile(192, 96, 32);
    EXPECT_LT(fused_cost(unknown, capability, 100, 512, 512, 512),
              fused_cost(unknown, capability, 100, 512, 512, 1024));
    EXPECT_LT(fused_cost(unknown, capability, 100, 512, 512, 512),
              fused_cost(unknown, capability, 10, 512, 512, 512));
    EXPECT_GT(fused_cost(unknown, capability, 0, 1, 1, 1), 0);
  }
}

// Blocks that share tiles pay off where few tiles are long.
TEST(FusedCost, SharedTilesAreForFewLongOnes) {
  const auto is_shared = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    double least = 0;
    for (const FusedVariant& variant : of_sm90) {
      const double cost = fused_cost(variant, 90, 132, m, n, k);
      if (least == 0 || cost < least) least = cost;
    }
    return fused_cost(shared_tile(128, 128), 90, 132, m, n, k) < least ||
           fused_cost(shared_tile(32, 128), 90, 132, m, n, k) < least;
  };
  EXPECT_TRUE(is_shared(256, 1024, 32768));
  EXPECT_TRUE(is_shared(32, 1024, 32768));
  EXPECT_FALSE(is_shared(256, 1024, 512)) << "too short";
  EXPECT_FALSE(is_shared(65536, 8192, 2048)) << "all are busy";
}

}  // namespace
}  // namespace switchback::products::cuda_emulated
