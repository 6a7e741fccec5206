// SPDX-License-Identifier: Apache-2.0
// Kernels on the emulated device that may begin before the previous kernel has run. Values that
// they read before they wait for that kernel are old, in a stream and in a graph.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

using CudaEmuOverlap = CudaEmu;

constexpr int threads = 96;
constexpr int blocks = 5;
constexpr int count = threads * blocks;

template <class F>
cudaError_t launch_over(F f, cudaStream_t stream) {
  return emu::launch_behind(call_kernel<F>, blocks, threads, 0, stream, "second", true, f);
}

// Two kernels. The first fills `between`; each thread of the second reads an element that another
// block filled.
struct Pair {
  DeviceArray<int> between{std::vector<int>(count, -1)};
  DeviceArray<int> out{std::vector<int>(count, -1)};

  cudaError_t first(cudaStream_t stream) const {
    return launch(
        blocks, threads,
        [to = between.data()] {
          __shared__ int kept[threads];
          kept[threadIdx.x] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
          __syncthreads();
          const unsigned other = threads - 1 - threadIdx.x;
          to[blockIdx.x * blockDim.x + other] = kept[other];
        },
        stream);
  }
  cudaError_t second(cudaStream_t stream, bool waits_in_time) const {
    return launch_over(
        [from = between.data(), to = out.data(), waits_in_time] {
          __shared__ int mine[threads];
          mine[threadIdx.x] = static_cast<int>(threadIdx.x);  // the first kernel must not change it
          __syncthreads();
          const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
          int early = 0;
          if (!waits_in_time) early = from[count - 1 - i];
          emu::wait_for_kernel_before();
          const int value = waits_in_time ? from[count - 1 - i] : early;
          __syncthreads();
          to[i] = value * 1000 + mine[(threadIdx.x + 1) % threads];
        },
        stream);
  }
  static std::vector<int> expected() {
    std::vector<int> want(count);
    for (int i = 0; i < count; ++i)
      want[static_cast<std::size_t>(i)] = (count - 1 - i) * 1000 + (i % threads + 1) % threads;
    return want;
  }
};

TEST_F(CudaEmuOverlap, AKernelThatWaitsSeesWhatTheOneBeforeItWrote) {
  for (const std::uint64_t seed : {0, 1, 2, 77}) {
    emu::reset({.schedule_seed = seed});
    const Pair pair;
    ASSERT_EQ(pair.first(nullptr), cudaSuccess);
    ASSERT_EQ(pair.second(nullptr, true), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << emu::last_fault();
    EXPECT_EQ(pair.out.read(), Pair::expected());
  }
}

#if !defined(SWITCHBACK_TEST_TSAN)
TEST_F(CudaEmuOverlap, AKernelThatReadsBeforeItWaitsReadsOldValues) {
  const Pair pair;
  ASSERT_EQ(pair.first(nullptr), cudaSuccess);
  ASSERT_EQ(pair.second(nullptr, false), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << emu::last_fault();
  EXPECT_NE(pair.out.read(), Pair::expected());
}
#endif

TEST_F(CudaEmuOverlap, InAGraph) {
  for (const bool waits_in_time : {true, false}) {
    emu::reset();
    const Pair pair;
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // waits for the copies into the arrays
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_EQ(pair.first(stream), cudaSuccess);
    ASSERT_EQ(pair.second(stream, waits_in_time), cudaSuccess);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << emu::last_fault();
#if !defined(SWITCHBACK_TEST_TSAN)
    EXPECT_EQ(pair.out.read() == Pair::expected(), waits_in_time);
#endif
    // In the second replay no value is old, because the first replay has filled the array.
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << emu::last_fault();
    EXPECT_EQ(pair.out.read(), Pair::expected());
    ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
}

TEST_F(CudaEmuOverlap, AKernelThatNeverWaitsIsAFault) {
  const Pair pair;
  ASSERT_EQ(pair.first(nullptr), cudaSuccess);
  ASSERT_EQ(launch_over([] {}, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(emu::last_fault(),
            "second: launched to overlap with the kernel before it, but never waits for that");
}

TEST_F(CudaEmuOverlap, AFaultOfTheKernelBeforeEndsBoth) {
  ASSERT_EQ(launch(1, 32, [] { __trap(); }), cudaSuccess);
  ASSERT_EQ(launch_over([] { emu::wait_for_kernel_before(); }, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("__trap"), std::string::npos) << emu::last_fault();
}

}  // namespace
}  // namespace switchback::test
