// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated device: queries about pointers, failures on demand, and the order of
// asynchronous frees.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

using CudaEmuMemory = CudaEmu;

cudaPointerAttributes attributes_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer), cudaSuccess);
  return attributes;
}

TEST_F(CudaEmuMemory, PointersSayWhatTheyAre) {
  emu::options().device_count = 2;
  char* first = nullptr;
  char* second = nullptr;
  char* pinned = nullptr;
  char stack[16];
  ASSERT_EQ(cudaMalloc(&first, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&second, 100), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);

  EXPECT_EQ(attributes_of(first + 99).type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes_of(first + 99).device, 0);
  EXPECT_EQ(attributes_of(first).devicePointer, first);
  EXPECT_EQ(attributes_of(first).hostPointer, nullptr);
  EXPECT_EQ(attributes_of(second).device, 1);
  EXPECT_EQ(attributes_of(pinned).type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes_of(stack).type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes_of(nullptr).type, cudaMemoryTypeUnregistered);
}

TEST_F(CudaEmuMemory, FreeTakesWhatMallocGave) {
  char* memory = nullptr;
  char* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  EXPECT_EQ(cudaFree(memory + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(emu::usage().allocations, 0u);
  EXPECT_EQ(emu::usage().peak_device_bytes, 100u);
}

TEST_F(CudaEmuMemory, ZeroBytesAreNullAndTooManyAreRefused) {
  void* memory = &memory;
  EXPECT_EQ(cudaMalloc(&memory, 0), cudaSuccess);
  EXPECT_EQ(memory, nullptr);
  emu::options().total_memory_bytes = 1000;
  EXPECT_EQ(cudaMalloc(&memory, 600), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total_bytes, 1000u);
}

TEST_F(CudaEmuMemory, FreshMemoryIsGarbage) {
  const DeviceArray<float> values(8);
  for (const float value : values.read())
    EXPECT_NE(value, value);
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
