// SPDX-License-Identifier: Apache-2.0
// Compares the fused kernel that is the default with measurements: the committed records of an
// H200.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "core/context_state.hpp"
#include "cuda/cuda_support.hpp"
#include "gemm/int8/engine.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // m, k, n
using Times = std::map<std::string, double>;                         // times in ms by configuration

// The times of int8 products in a record of the workload `sweep` of switchback-bench, by shape.
std::map<Shape, Times> sweep_of(const std::filesystem::path& file) {
  std::map<Shape, Times> all;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.value("bench", "") != "sweep" || record.value("variant", "") != "int8") continue;
    all[{record["batch"], record["dim_in"], record["dim_out"]}][record["subject"]["name"]] =
        record["subject"]["median_ms"];
  }
  return all;
}

GemmProblem problem_of(const Shape& shape) {
  GemmProblem p;
  p.m = std::get<0>(shape);
  p.k = p.stride_a = p.stride_b = std::get<1>(shape);
  p.n = p.stride_d = std::get<2>(shape);
  p.output = DType::bf16;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.alignment = 16;
  return p;
}

class CudaFusedDefault : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    show_fused_products(true);
  }
  void TearDown() override {
    show_fused_products(false);
    Cuda::TearDown();
  }
  static GemmConfig default_of(const Context& context, const Shape& shape) {
    const auto* fused =
        gemm_int8::find_engine(context.state().device.kind, std::string_view("fused"));
    return fused->default_config(problem_of(shape), context.state());
  }
};

// Each record was measured in one process, so times are compared only within a record.
TEST_F(CudaFusedDefault, IsWithinFivePercentOfTheFastestOnAnH200) {
  switchback_cuda_emu::options().multiprocessor_count = 132;
  const Context context(emulated());
  std::map<Shape, double> ratios;  // default's time relative to the fastest of the same record
  for (const auto& file : std::filesystem::directory_iterator(SWITCHBACK_H200_RECORDS)) {
    if (!file.path().filename().string().starts_with("micro-sweep")) continue;
    for (const auto& [shape, times] : sweep_of(file.path())) {
      const auto own = times.find(describe(default_of(context, shape)));
      double& ratio =
          ratios.try_emplace(shape, std::numeric_limits<double>::infinity()).first->second;
      if (own == times.end()) continue;
      double least = own->second;
      for (const auto& [name, ms] : times)
        least = std::min(least, ms);
      ratio = std::min(ratio, own->second / least);
    }
  }
  EXPECT_GE(ratios.size(), 15u);
  for (const auto& [shape, ratio] : ratios)
    EXPECT_LE(ratio, 1.05) << fmt::format("{}x{}x{}: {}", std::get<0>(shape), std::get<1>(shape),
                                          std::get<2>(shape), describe(default_of(context, shape)));
}

TEST_F(CudaFusedDefault, FewRowsHaveTheirOwnKernelsAndManyTilesAreTakenInPairs) {
  switchback_cuda_emu::options().multiprocessor_count = 132;
  const Context context(emulated());
  const auto name = [&](std::int64_t m, std::int64_t n) {
    const GemmConfig config = default_of(context, {m, 4096, n});
    return fmt::format("{}x{} {} {}", config.mc, config.nc, config.cluster, config.swizzle);
  };
  EXPECT_EQ(name(1, 4096), "16x32 1 0");
  EXPECT_EQ(name(16, 65536), "16x32 1 0");
  EXPECT_EQ(name(17, 4096), "64x64 1 0");
  EXPECT_EQ(name(32, 14336), "64x128 1 0");
  EXPECT_EQ(name(64, 4096), "64x64 1 0");
  EXPECT_EQ(name(128, 8192), "64x128 1 0");
  EXPECT_EQ(name(512, 4096), "128x128 1 0") << "one wave of tiles";
  EXPECT_EQ(name(1024, 4096), "128x128 2 0");
  EXPECT_EQ(name(4096, 4096), "128x128 2 0");
  EXPECT_EQ(name(4097, 4096), "128x128 1 0") << "34 rows of tiles would take one wave more than 33";
  EXPECT_EQ(name(4608, 12288), "128x128 2 2") << "36 rows of tiles are no whole strips of 4 pairs";
  EXPECT_EQ(name(65536, 8192), "128x128 2 8");
}

}  // namespace
}  // namespace switchback::test
