// SPDX-License-Identifier: Apache-2.0
// Failures on a device: out of memory, failed launches, cuBLASLt that is missing or refuses a
// product. Errors name the call, the status and the problem, and the next call works.
#include <algorithm>

#include <cuda_runtime.h>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::options;

TEST_F(Cuda, NoMemoryIsNamedAndTheNextCallWorks) {
  Context context(emulated());
  ProductOnDevice product(context);
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

TEST_F(Cuda, ADeviceWithoutMemoryPoolsHasOtherAllocations) {
  options().memory_pools = false;
  {
    Context context(emulated());
    ProductOnDevice product(context);
    product.run("dp4a");
    EXPECT_TRUE(product.right());
    EXPECT_EQ(switchback_cuda_emu::calls("cudaMallocAsync"), 0u);
  }
  EXPECT_EQ(switchback_cuda_emu::usage().device_bytes, 0u);
}

TEST_F(Cuda, AFailedLaunchNamesTheKernelAndTheStatus) {
  Context context(emulated());
  ProductOnDevice product(context);
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
  ProductOnDevice first(context, 64, 64, 64);
  first.run("cublaslt");
  EXPECT_TRUE(first.right());
  for (const int algorithm : {0, 21, 31, 66}) {
    options().refuse_at_run.id = algorithm;
    Context fresh(emulated());
    ProductOnDevice product(fresh, 64, 64, 64);
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
  ProductOnDevice product(context);
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
  ProductOnDevice product(context, 48, 52, 60);
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
    ProductOnDevice product(context, m, 20, 24);
    product.run("cublaslt");
    EXPECT_TRUE(product.right()) << m << " rows";
  }
}

}  // namespace
}  // namespace switchback::test
