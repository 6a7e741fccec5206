// SPDX-License-Identifier: Apache-2.0
// The engine `fused`: what it queues apart from its kernel, the launch parameters that it keeps,
// the trials of kernels in this process, and which kernel is the default.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/context_state.hpp"
#include "cuda/cuda_support.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/cuda/fused/prepared.hpp"
#include "gemm/int8/engine.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

class CudaFused : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    show_fused_products(true);
  }
  void TearDown() override {
    show_fused_products(false);
    Cuda::TearDown();
  }
};

TEST_F(CudaFused, ABiasOfTheOutputsTypeTakesNoKernelOfItsOwn) {
  Context context(emulated());
  const ProductOnDevice product(context, 33, 48, 64);
  const DeviceMatrix<bfloat16> d(context, 33, 48), bias(context, 1, 48);
  GemmArgs args;
  args.a = product.a.view();
  args.b = product.b.view();
  args.d = d.view();
  args.absmax_a = product.absmax_a.span();
  args.absmax_b = product.absmax_b.span();
  args.engine = "fused";
  // An error of an earlier call is not the product's.
  ASSERT_EQ(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(this)),
            cudaErrorInvalidResourceHandle);
  const std::size_t without = kernels_of([&] { gemm(context, args); }).size();
  args.bias = bias.view();
  EXPECT_EQ(kernels_of([&] { gemm(context, args); }).size(), without);
  context.synchronize();
}

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;
using gemm_int8::ScaleMode;

// A ConfigSource without configurations that collects warnings.
class Listener final : public ConfigSource {
 public:
  bool find(const ConfigQuery&, const ContextState&, ConfigChoice&) const override { return false; }
  void warn(std::string text) const override {
    const std::lock_guard lock(mutex_);
    if (std::find(texts_.begin(), texts_.end(), text) == texts_.end())
      texts_.push_back(std::move(text));
  }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::string> texts_;
};

// A problem with more rows than the kernels for few rows support, because the stand-in does not
// replace those kernels.
GemmProblem problem(DType output = DType::f32) {
  GemmProblem p;
  p.m = 40, p.n = p.stride_d = 48;
  p.k = p.stride_a = p.stride_b = 64;
  p.output = output;
  p.scale = ScaleMode::row_col;
  p.alignment = 16;
  return p;
}

GemmProblem groups(ScaleMode scale) {
  GemmProblem p = problem();
  p.layout = gemm_int8::GroupLayout::packed;
  p.groups = 2;
  p.scale = scale;
  return p;
}

// Test fixture: trials of fused kernels in this process, on a device of 8.6 unless a test changes
// that.
class CudaFusedTrial : public CudaFused {
 protected:
  void SetUp() override {
    CudaFused::SetUp();
    emulate_compute_capability(86);
  }
  // The number of trials of fused kernels since the last reset: each trial launches a kernel of
  // dp4a.
  static std::size_t trials() {
    const auto all = switchback_cuda_emu::launches();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const auto& launch) {
      return launch.name == "dp4a" || launch.name == "grouped_dp4a";
    }));
  }
};

TEST_F(CudaFusedTrial, ARightKernelIsTheDefaultAfterOneComparison) {
  for (const int capability : {80, 86, 120}) {
    show_fused_products(true);  // forgets the trials of the kernels
    emulate_compute_capability(capability);
    Context context(emulated());
    const GemmConfig by_default = gemm_int8::default_config(problem(), context.state());
    EXPECT_EQ(by_default.engine, EngineId::fused) << capability;
    const std::size_t once = trials();
    EXPECT_GT(once, 0u);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(gemm_int8::default_config(problem(), context.state()), by_default);
    Context other(emulated());
    EXPECT_EQ(gemm_int8::default_config(problem(), other.state()), by_default);
    EXPECT_EQ(trials(), once) << "known to the process";
    // For another output type it is another kernel, which needs its own trial.
    EXPECT_EQ(gemm_int8::default_config(problem(DType::bf16), context.state()).engine,
              EngineId::fused);
    EXPECT_GT(trials(), once);
    for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar})
      EXPECT_EQ(gemm_int8::default_config(groups(scale), context.state()).engine, EngineId::fused);
  }
}

TEST_F(CudaFusedTrial, AWrongKernelIsFoundAndReplaced) {
  Context context(emulated());
  const int default_rows =
      static_cast<int>(gemm_int8::default_config(problem(), context.state()).mc);
  show_fused_products(true);  // forgets the kernel's trial
  break_fused_products(Fault::wrong, default_rows);
  const auto listener = std::make_shared<Listener>();
  context.set_config_source(listener);
  const GemmConfig instead = gemm_int8::default_config(problem(), context.state());
  EXPECT_NE(static_cast<int>(instead.mc), default_rows);
  ASSERT_EQ(listener->texts().size(), 1u);
  EXPECT_NE(listener->texts().front().find("engine 'fused': its kernel with tiles of " +
                                           std::to_string(default_rows) + "x"),
            std::string::npos)
      << listener->texts().front();
  // The kernel that now computes the product gives the right result.
  ProductOnDevice product(context, 40, 48, 64);
  const Matrix<float> chosen = product.scaled();
  EXPECT_TRUE(chosen == product.scaled("dp4a"));
}

TEST_F(CudaFusedTrial, AWrongKernelOfGroupsIsFound) {
  for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar}) {
    show_fused_products(true);
    Context context(emulated());
    const int rows = static_cast<int>(gemm_int8::default_config(groups(scale), context.state()).mc);
    show_fused_products(true);
    break_fused_products(Fault::wrong, rows);
    const auto listener = std::make_shared<Listener>();
    context.set_config_source(listener);
    EXPECT_NE(static_cast<int>(gemm_int8::default_config(groups(scale), context.state()).mc), rows);
    EXPECT_EQ(listener->texts().size(), 1u);
  }
}

// During a capture, results of earlier trials are used, but unknown kernels are not tried.
TEST_F(CudaFusedTrial, NothingIsTriedInACapture) {
  Context context(emulated());
  EXPECT_EQ(gemm_int8::default_config(problem(), context.state()).engine, EngineId::fused);
  context.synchronize();
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  const std::size_t before = trials();
  const std::size_t allocations = switchback_cuda_emu::usage().allocations;
  EXPECT_EQ(gemm_int8::default_config(problem(), context.state()).engine, EngineId::fused);
  EXPECT_NE(gemm_int8::default_config(problem(DType::f16), context.state()).engine,
            EngineId::fused);
  EXPECT_EQ(trials(), before);
  EXPECT_EQ(switchback_cuda_emu::usage().allocations, allocations);
  (void)runtime.end_capture();
  EXPECT_EQ(gemm_int8::default_config(problem(DType::f16), context.state()).engine,
            EngineId::fused);
}

TEST_F(CudaFusedTrial, WithoutMemoryItIsTriedLater) {
  Context context(emulated());
  switchback_cuda_emu::options().fail_allocation_after = 0;
  EXPECT_NE(gemm_int8::default_config(problem(), context.state()).engine, EngineId::fused);
  switchback_cuda_emu::options().fail_allocation_after = -1;
  EXPECT_EQ(gemm_int8::default_config(problem(), context.state()).engine, EngineId::fused);
}

TEST_F(CudaFusedTrial, ThreadsAgree) {
  const std::size_t before = trials();
  {
    Context alone(emulated());
    (void)gemm_int8::default_config(problem(), alone.state());
  }
  const std::size_t of_one = trials() - before;
  show_fused_products(true);
  constexpr int count = 4;
  std::vector<GemmConfig> found(count);
  std::vector<std::unique_ptr<Context>> contexts;
  for (int i = 0; i < count; ++i)
    contexts.push_back(std::make_unique<Context>(emulated()));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      const auto at = static_cast<std::size_t>(i);
      found[at] = gemm_int8::default_config(problem(), contexts[at]->state());
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const GemmConfig& config : found) {
    EXPECT_EQ(config, found.front());
    EXPECT_EQ(config.engine, EngineId::fused);
  }
  EXPECT_EQ(trials() - before, 2 * of_one);
}

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

// Compares the fused kernel that is the default with measurements: the committed records of an
// H200.
class CudaFusedDefault : public CudaFused {
 protected:
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

namespace switchback::products::cuda {
namespace {

// The launch parameters of a fused kernel are created once for the same arguments, and again for
// different ones.
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

TEST_F(FusedPrepared, EveryArgumentCounts) {
  const FusedArguments first = rows(5);
  EXPECT_EQ(find(first), 5);
  EXPECT_EQ(find(first), 5);
  EXPECT_EQ(made_, 1);
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

TEST_F(FusedPrepared, TheOldestGivesWayAndWhatFailedIsNotKept) {
  EXPECT_EQ(find(rows(0), cudaErrorInvalidValue), -1);
  made_ = 0;
  const int most = static_cast<int>(Prepared<Launch>::most);
  for (int m = 0; m <= most; ++m)
    EXPECT_EQ(find(rows(m)), m);
  EXPECT_EQ(made_, most + 1);
  EXPECT_EQ(find(rows(most)), most);
  EXPECT_EQ(find(rows(1)), 1);
  EXPECT_EQ(made_, most + 1);
  EXPECT_EQ(find(rows(0)), 0);
  EXPECT_EQ(made_, most + 2);
}

}  // namespace
}  // namespace switchback::products::cuda
