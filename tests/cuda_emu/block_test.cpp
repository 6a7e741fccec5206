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

// Resets the device with a seed for the order of threads. Seed 0 is ascending order, the two others
// are random.
void set_seed(std::uint64_t seed) {
  emu::Options options;
  options.schedule_seed = seed;
  emu::reset(options);
}
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
  EXPECT_EQ(launch(0, 32, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 33), nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 65), nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 1, 65536), 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0x80000000u, 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(launch(1, dim3(1, 1, 64), nothing), cudaSuccess);

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
  EXPECT_EQ(emu::launches().size(), 3u);
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
      set_seed(seed);
      EXPECT_EQ(launch(2, 64, divergence.body), cudaSuccess) << "it is the run that fails";
      EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
      EXPECT_NE(emu::last_fault().find(divergence.says), std::string::npos) << emu::last_fault();
      EXPECT_EQ(emu::last_fault().rfind("lambda, block (", 0), 0u) << emu::last_fault();
      // After a fault every call fails, until the device is reset.
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
      EXPECT_EQ(run(1, 64, [] { __syncthreads(); }), cudaSuccess) << emu::last_fault();
    }
}

TEST_F(CudaEmuBlock, AFaultNamesThePlaces) {
  EXPECT_EQ(run(1, 64,
                [] {
                  if (threadIdx.x == 9) return;
                  __syncthreads();
                }),
            cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("block_test.cpp:"), std::string::npos) << emu::last_fault();
  EXPECT_NE(emu::last_fault().find("(9,0,0)"), std::string::npos) << emu::last_fault();
}

}  // namespace
}  // namespace switchback::test
