// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device: what it finds wrong with its use.
#include <gtest/gtest.h>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

using CudaEmuMemory = CudaEmu;

TEST_F(CudaEmuMemory, FreshMemoryIsGarbage) {
  const DeviceArray<float> values(8);
  for (const float value : values.read())
    EXPECT_NE(value, value);
}

TEST_F(CudaEmuMemory, FreeTakesWhatMallocGave) {
  char* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  EXPECT_EQ(cudaFree(memory + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
}

TEST_F(CudaEmuMemory, ACopyIntoMemoryThatIsNotThereYetIsAFault) {
  cudaStream_t allocating = nullptr;
  cudaStream_t copying = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&allocating, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking), cudaSuccess);
  emu::options().schedule_seed = 0;  // seed 0: only operations that a call waits for run
  int* memory = nullptr;
  ASSERT_EQ(cudaMallocAsync(&memory, sizeof(int), allocating), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 0, sizeof(int), copying), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(copying), cudaErrorIllegalAddress);
  EXPECT_NE(emu::last_fault().find("not allocated"), std::string::npos) << emu::last_fault();
}

// A call that needs a device sets up a context on the current device, as on a GPU, where it takes
// device memory.
TEST_F(CudaEmuMemory, WhatNeedsADeviceSetsTheCurrentOneUp) {
  emu::options().device_count = 2;
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
  EXPECT_FALSE(emu::has_context(0));
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_TRUE(emu::has_context(0));
  EXPECT_FALSE(emu::has_context(1));
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_TRUE(emu::has_context(1));
}

}  // namespace
}  // namespace switchback::test
