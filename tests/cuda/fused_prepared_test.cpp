// SPDX-License-Identifier: Apache-2.0
// The launch parameters of a fused kernel are created once for the same arguments, and again for
// different ones.
#include "gemm/int8/cuda/fused/prepared.hpp"

#include <gtest/gtest.h>

namespace switchback::products::cuda {
namespace {

class FusedPrepared : public ::testing::Test {
 protected:
  struct Launch {
    int m = 0;
  };
  // Looks up the parameters of a launch. Returns the number of rows for which they were made, or -1
  // after an error.
  int find(const FusedArguments& arguments, cudaError_t status = cudaSuccess) {
    Launch* launch = nullptr;
    const auto prepare = [&](Launch& made) {
      ++made_;
      made.m = arguments.m;
      return status;
    };
    return prepared_.find(arguments, prepare, launch) == cudaSuccess ? launch->m : -1;
  }
  static FusedArguments rows(int m) {
    FusedArguments arguments{};
    arguments.m = m;
    return arguments;
  }
  Prepared<Launch> prepared_;
  int made_ = 0;
};

TEST_F(FusedPrepared, TheSameArgumentsAreFoundAgain) {
  EXPECT_EQ(find(rows(5)), 5);
  EXPECT_EQ(find(rows(5)), 5);
  EXPECT_EQ(made_, 1);
}

TEST_F(FusedPrepared, EveryArgumentCounts) {
  const FusedArguments first = rows(5);
  find(first);
  int made = 1;
  const auto differs = [&](auto change) {
    FusedArguments other = first;
    change(other);
    find(other);
    EXPECT_EQ(made_, ++made);
  };
  static const std::int8_t code = 0;
  static float number = 0;
  differs([](FusedArguments& p) { p.a = &code; });
  differs([](FusedArguments& p) { p.b = &code; });
  differs([](FusedArguments& p) { p.d = &number; });
  differs([](FusedArguments& p) { p.absmax_a = &number; });
  differs([](FusedArguments& p) { p.absmax_b = &number; });
  differs([](FusedArguments& p) { p.bias = &number; });
  differs([](FusedArguments& p) { p.bias_type = DType::bf16; });
  differs([](FusedArguments& p) { p.m = 6; });
  differs([](FusedArguments& p) { p.n = 6; });
  differs([](FusedArguments& p) { p.k = 6; });
  differs([](FusedArguments& p) { p.a_stride = 6; });
  differs([](FusedArguments& p) { p.d_stride = 6; });
  differs([](FusedArguments& p) { p.scalar_b = true; });
  differs([](FusedArguments& p) { p.raster = FusedRaster::along_n; });
  differs([](FusedArguments& p) { p.device = 1; });
}

TEST_F(FusedPrepared, TheOldestGivesWay) {
  const int most = static_cast<int>(Prepared<Launch>::most);
  for (int m = 0; m <= most; ++m)
    find(rows(m));
  EXPECT_EQ(made_, most + 1);
  EXPECT_EQ(find(rows(most)), most);
  EXPECT_EQ(find(rows(1)), 1);
  EXPECT_EQ(made_, most + 1);
  EXPECT_EQ(find(rows(0)), 0);
  EXPECT_EQ(made_, most + 2);
}

TEST_F(FusedPrepared, WhatFailedIsNotKept) {
  EXPECT_EQ(find(rows(5), cudaErrorInvalidValue), -1);
  EXPECT_EQ(find(rows(5)), 5);
  EXPECT_EQ(made_, 2);
}

}  // namespace
}  // namespace switchback::products::cuda
