// SPDX-License-Identifier: Apache-2.0
// Kernel launches and thread blocks on the emulated device: limits, and faults whose messages name
// their cause.
#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

using CudaEmuBlock = CudaEmu;

// Seeds for the order of threads. 0 is the ascending order, the two others are random.
constexpr std::uint64_t seeds[] = {0, 1, 77};

TEST_F(CudaEmuBlock, DynamicSharedMemoryStartsWithGarbage) {
  const DeviceArray<int> wrong(std::vector<int>(1, 0));
  ASSERT_EQ(run(
                3, 64,
                [wrong = wrong.data()] {
                  SWITCHBACK_DYNAMIC_SHARED(float, values);
                  if (!std::isnan(values[threadIdx.x])) atomicAdd(wrong, 1);
                  __syncthreads();
                  values[threadIdx.x] = 1.0f;
                },
                64 * sizeof(float)),
            cudaSuccess);
  EXPECT_EQ(wrong.read()[0], 0);
}

TEST_F(CudaEmuBlock, LimitsOfALaunch) {
  const auto nothing = [] {};
  const dim3 wrong_blocks[] = {0, 1025, {32, 33}, {1, 1, 65}};
  for (const dim3 block : wrong_blocks)
    EXPECT_EQ(launch(1, block, nothing), cudaErrorInvalidConfiguration);
  const dim3 wrong_grids[] = {0, {1, 65536}, {1, 1, 65536}, 0x80000000u};
  for (const dim3 grid : wrong_grids)
    EXPECT_EQ(launch(grid, 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 64), nothing), cudaSuccess);
  // Dynamic shared memory: 48 KiB, or up to 227 KiB after the kernel has asked for it.
  EXPECT_EQ(launch(1, 1, nothing, nullptr, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(1, 1, nothing, nullptr, (48 << 10) + 1), cudaErrorInvalidValue);
  const auto raise = [&](int bytes) {
    return cudaFuncSetAttribute(call_kernel<std::remove_const_t<decltype(nothing)>>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(raise((227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(raise(227 << 10), cudaSuccess);
  EXPECT_EQ(launch(1, 1, nothing, nullptr, 227 << 10), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// A kernel whose threads diverge at a barrier or collective, and the report that the fault must
// give. Every build reports it, and none hangs.
struct Divergence {
  const char* name;
  void (*body)();
  const char* says;
};

const Divergence divergences[] = {
    {"return before a barrier",
     [] {
       if (threadIdx.x < 5) return;
       __syncthreads();
     },
     "a thread has returned"},
    {"two barriers",
     [] {
       if (threadIdx.x < 32)
         __syncthreads();
       else
         __syncthreads();
     },
     "divergent barrier"},
    {"barrier against shuffle",
     [] {
       if (threadIdx.x % 2 == 0)
         __syncthreads();
       else
         __shfl_sync(0xffffffffu, 1, 0);
     },
     "divergent barrier"},
    {"lane that returned",
     [] {
       if (threadIdx.x == 7) return;
       __syncwarp();
     },
     "a thread has returned"},
    {"two collectives",
     [] {
       if (threadIdx.x % 2 == 0)
         __ballot_sync(0xffffffffu, 1);
       else
         __any_sync(0xffffffffu, 1);
     },
     "divergent warp collective"},
    {"two masks", [] { __syncwarp(threadIdx.x % 32 < 16 ? 0xffffffffu : 0xffff0000u); },
     "divergent barrier"},
    {"mask without the caller", [] { __syncwarp(1u); }, "does not name the thread"},
    {"shuffle from outside of the mask",
     [] {
       if (threadIdx.x % 32 < 16) __shfl_sync(0x0000ffffu, 1, 20);
     },
     "not in the mask"},
    {"trap", [] { __trap(); }, "__trap"},
    {"waiting for nobody",
     [] {
       if (threadIdx.x == 0)
         for (;;)
           __nanosleep(100);
     },
     "no thread of the block does"},
};

TEST_F(CudaEmuBlock, DivergenceIsAFault) {
  for (const std::uint64_t seed : seeds)
    for (const Divergence& divergence : divergences) {
      SCOPED_TRACE(divergence.name);
      emu::reset({.schedule_seed = seed});
      EXPECT_EQ(launch(2, 64, divergence.body), cudaSuccess) << "it is the run that fails";
      EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
      EXPECT_NE(emu::last_fault().find(divergence.says), std::string::npos) << emu::last_fault();
      EXPECT_EQ(emu::last_fault().rfind("lambda, block (", 0), 0u) << emu::last_fault();
      EXPECT_NE(emu::last_fault().find(" thread ("), std::string::npos) << emu::last_fault();
      // After a fault every call fails, until the device is reset.
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      emu::reset();
      EXPECT_EQ(run(1, 64, [] { __syncthreads(); }), cudaSuccess) << emu::last_fault();
    }
}

}  // namespace
}  // namespace switchback::test
