// SPDX-License-Identifier: Apache-2.0
// Failures on a device: out of memory, failed launches, cuBLASLt that is missing or refuses a
// product. Errors name the call, the status and the problem, and the next call works.
#include <algorithm>

#include <cuda_runtime.h>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::options;

struct Product {
  explicit Product(Context& context_, std::int64_t m_ = 20, std::int64_t n_ = 24,
                   std::int64_t k_ = 40)
      : context(context_), host_a(m_, k_), host_b(n_, k_), want(m_, n_) {
    Random random(1);
    fill_codes(host_a, random);
    fill_codes(host_b, random);
    Context cpu(cpu_options());
    GemmS8S8S32Args args;
    args.a = host_a.view();
    args.b = host_b.view();
    args.d = want.view();
    gemm_s8s8s32(cpu, args);
    a.emplace(context, host_a);
    b.emplace(context, host_b);
    d.emplace(context, m_, n_);
  }
  void run(std::string_view engine = {}) {
    GemmS8S8S32Args args;
    args.a = a->view();
    args.b = b->view();
    args.d = d->view();
    args.engine = engine;
    gemm_s8s8s32(context, args);
  }
  bool right() { return d->download() == want; }

  Context& context;
  Matrix<std::int8_t> host_a, host_b;
  Matrix<std::int32_t> want;
  std::optional<DeviceMatrix<std::int8_t>> a, b;
  std::optional<DeviceMatrix<std::int32_t>> d;
};

TEST_F(Cuda, NoMemoryIsNamedAndTheNextCallWorks) {
  Context context(emulated());
  Product product(context);
  const std::size_t launched = switchback_cuda_emu::calls("launch");
  options().fail_allocation_after = 0;
  const std::string message = message_of(Status::out_of_memory, [&] { product.run("dp4a"); });
  EXPECT_NE(message.find("cudaMallocAsync of "), std::string::npos) << message;
  EXPECT_NE(message.find("cudaErrorMemoryAllocation (2)"), std::string::npos) << message;
  EXPECT_EQ(switchback_cuda_emu::calls("launch"), launched);
  options().fail_allocation_after = -1;
  product.run("dp4a");
  EXPECT_TRUE(product.right());
}

TEST_F(Cuda, AFailedLaunchNamesTheKernelAndTheStatus) {
  Context context(emulated());
  Product product(context);
  options().fail_call_name = "launch";
  options().fail_call_after = 0;
  options().fail_call_error = cudaErrorLaunchOutOfResources;
  const std::string message = message_of(Status::device_error, [&] { product.run("dp4a"); });
  EXPECT_NE(message.find("kernel dp4a: cudaErrorLaunchOutOfResources"), std::string::npos)
      << message;
  options().fail_call_after = -1;
  product.run("dp4a");
  EXPECT_TRUE(product.right());
}

TEST_F(Cuda, AnAlgorithmThatIsRefusedWhenItRunsIsFollowedByTheNext) {
  Context context(emulated());
  Product first(context, 64, 64, 64);
  first.run("cublaslt");
  EXPECT_TRUE(first.right());
  for (const int algorithm : {0, 21, 31, 66}) {
    options().refuse_algo = algorithm;
    Context fresh(emulated());
    Product product(fresh, 64, 64, 64);
    product.run("cublaslt");
    EXPECT_TRUE(product.right()) << "without algorithm " << algorithm;
  }
}

// cuBLASLt is looked up once per process, so this test has its own process.
TEST_F(Cuda, WithoutCublasLtTheDeviceMultipliesByItself) {
  options().cublaslt_missing = true;
  Context context(emulated());
  const std::vector<EngineInfo> engines = gemm_engines(context);
  const auto cublaslt = std::find_if(engines.begin(), engines.end(), [](const EngineInfo& engine) {
    return engine.name == "cublaslt";
  });
  ASSERT_NE(cublaslt, engines.end());
  if (cublaslt->available) GTEST_SKIP() << "another test has loaded the library";
  EXPECT_NE(cublaslt->reason.find("cuBLASLt was not found"), std::string::npos);
  EXPECT_NE(cublaslt->reason.find("SWITCHBACK_CUBLASLT"), std::string::npos);
  Product product(context);
  product.run();
  EXPECT_TRUE(product.right());
  const DeviceMatrix<float> a(context, 3, 4);
  const DeviceMatrix<float> d(context, 3, 3);
  StandardGemmArgs args;
  args.a = a.view();
  args.b = a.view();
  args.d = d.view();
  args.transpose_b = true;
  EXPECT_NE(message_of(Status::unsupported, [&] { gemm_standard(context, args); })
                .find("cuBLASLt was not found"),
            std::string::npos);
}

TEST_F(Cuda, WhatTheLibraryHasNoAlgorithmForIsTheDevicesOwn) {
  Context context(emulated());
  Product product(context, 48, 52, 60);
  const auto have_none = [] {
    options().fail_call_name = "cublasLtMatmulAlgoGetHeuristic";
    options().fail_call_error = cudaErrorNotSupported;
    options().fail_call_after = 0;
  };
  have_none();
  product.run();
  EXPECT_TRUE(product.right());
  EXPECT_EQ(switchback_cuda_emu::launches().front().name, "dp4a");
  have_none();
  EXPECT_NE(message_of(Status::unsupported, [&] { product.run("cublaslt"); })
                .find("cuBLASLt has no algorithm for s8"),
            std::string::npos);
}

TEST_F(Cuda, FewRowsArePaddedWhereTheLibraryRefusesThem) {
  options().refuse_rows_up_to_16 = true;
  Context context(emulated());
  for (const std::int64_t m : {1, 2, 15, 16, 17, 31}) {
    Product product(context, m, 20, 24);
    product.run("cublaslt");
    EXPECT_TRUE(product.right()) << m << " rows";
  }
}

// A tuner's cache may name an algorithm by a place in cuBLASLt's ranking that this version of the
// library does not have.
TEST_F(Cuda, AnUnknownPlaceInTheRankingFallsBackToTheFirst) {
  class Ranked : public ConfigSource {
   public:
    bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
      choice.words = {query.op == ConfigOp::gemm_int8 ? 6 : 4};
      choice.words[query.op == ConfigOp::gemm_int8 ? 6 : 2] = 63;
      return query.op != ConfigOp::quantize;
    }
  };
  Context context(emulated());
  context.set_config_source(std::make_shared<Ranked>());
  Product product(context);
  product.run();
  EXPECT_TRUE(product.right());
}

}  // namespace
}  // namespace switchback::test
