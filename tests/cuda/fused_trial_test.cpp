// SPDX-License-Identifier: Apache-2.0
// Fused kernels that cannot hang: each is compared with another kernel once in this process before
// it may be the default.
#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cuda/cuda_support.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

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
class CudaFusedTrial : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    show_fused_products(true);
    emulate_compute_capability(86);
  }
  void TearDown() override {
    show_fused_products(false);
    Cuda::TearDown();
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
  Random random(1);
  Matrix<std::int8_t> host_a(40, 64), host_b(48, 64);
  fill_codes(host_a, random);
  fill_codes(host_b, random);
  const DeviceMatrix<std::int8_t> a(context, host_a), b(context, host_b);
  Matrix<float> ones(1, 48);
  for (std::int64_t i = 0; i < 48; ++i)
    ones.set(0, i, 1.0f);
  const DeviceMatrix<float> scales(context, ones);
  const auto product = [&](const char* engine) {
    const DeviceMatrix<float> d(context, Matrix<float>(40, 48));
    GemmArgs args;
    args.a = a.view();
    args.b = b.view();
    args.d = d.view();
    args.absmax_a = scales.span().first(40);
    args.absmax_b = scales.span();
    args.engine = engine;
    gemm(context, args);
    return d.download();
  };
  EXPECT_TRUE(product("") == product("dp4a"));
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

}  // namespace
}  // namespace switchback::test
