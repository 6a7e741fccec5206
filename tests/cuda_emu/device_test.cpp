// SPDX-License-Identifier: Apache-2.0
// Machines: with a device, with two, with none, with an old driver.
#include <gtest/gtest.h>

#include <cstring>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

using CudaEmuDevice = CudaEmu;

TEST_F(CudaEmuDevice, NoDevice) {
  emu::options().device_count = 0;
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorNoDevice);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorNoDevice);
  int version = -1;
  EXPECT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 13000);
}

TEST_F(CudaEmuDevice, OldDriver) {
  emu::options().driver_version = 12080;
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorInsufficientDriver);
  int version = -1;
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 12080);
}

TEST_F(CudaEmuDevice, PropertiesFollowTheOptions) {
  emu::options().device_count = 2;
  emu::options().compute_capability = 86;
  emu::options().multiprocessor_count = 10;
  cudaDeviceProp p{};
  ASSERT_EQ(cudaGetDeviceProperties(&p, 1), cudaSuccess);
  EXPECT_EQ(p.major * 10 + p.minor, 86);
  EXPECT_EQ(p.multiProcessorCount, 10);
  EXPECT_EQ(p.sharedMemPerBlockOptin, std::size_t{99} << 10);
  EXPECT_EQ(p.maxThreadsPerMultiProcessor, 1536);
  EXPECT_EQ(cudaGetDeviceProperties(&p, 2), cudaErrorInvalidDevice);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, 10);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(12345), 0),
            cudaErrorInvalidValue);
}

__global__ void nothing_kernel() {}

// As on a GPU, where that takes memory of it.
TEST_F(CudaEmuDevice, WhatNeedsADeviceSetsTheCurrentOneUp) {
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

// A context that was pushed says which device is the current one, until it is popped.
TEST_F(CudaEmuDevice, APushedContextIsTheCurrentDevice) {
  emu::options().device_count = 2;
  const auto function_of = [](const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
              cudaSuccess);
    EXPECT_EQ(found, function != nullptr ? cudaDriverEntryPointSuccess
                                         : cudaDriverEntryPointSymbolNotFound);
    return function;
  };
  const auto current = [] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  };
  EXPECT_EQ(function_of("cuNothing"), nullptr);
  const auto retain =
      reinterpret_cast<int (*)(void**, int)>(function_of("cuDevicePrimaryCtxRetain"));
  const auto push = reinterpret_cast<int (*)(void*)>(function_of("cuCtxPushCurrent"));
  const auto pop = reinterpret_cast<int (*)(void**)>(function_of("cuCtxPopCurrent"));
  void* context = nullptr;
  ASSERT_EQ(retain(&context, 1), 0);
  EXPECT_EQ(current(), 0);
  ASSERT_EQ(push(context), 0);
  EXPECT_EQ(current(), 1);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  void* popped = nullptr;
  ASSERT_EQ(pop(&popped), 0);
  EXPECT_EQ(popped, context);
  EXPECT_EQ(current(), 0);
  EXPECT_NE(pop(&popped), 0) << "there is no other";
  EXPECT_FALSE(emu::has_context(0));
}

TEST_F(CudaEmuDevice, Occupancy) {
  int blocks = -1;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing_kernel, 256, 0),
            cudaSuccess);
  EXPECT_EQ(blocks, 8);
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing_kernel, 256, 100 << 10),
            cudaSuccess);
  EXPECT_EQ(blocks, 2);
}

TEST_F(CudaEmuDevice, ErrorsHaveNames) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

TEST_F(CudaEmuDevice, ResetForgetsEverything) {
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(launch(
                1, 1, [] { __trap(); }, stream),
            cudaSuccess);
  emu::reset();
  const emu::Usage usage = emu::usage();
  EXPECT_EQ(usage.allocations + usage.streams + usage.events + usage.queued, 0u);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(emu::calls("launch"), 0u);
}

}  // namespace
}  // namespace switchback::test
