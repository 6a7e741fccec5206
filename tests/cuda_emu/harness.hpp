// SPDX-License-Identifier: Apache-2.0
// Test support: runs lambdas as kernels of the emulated device, and owns device memory.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SWITCHBACK_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SWITCHBACK_TEST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SWITCHBACK_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SWITCHBACK_TEST_TSAN 1
#endif
#endif

namespace switchback::test {

namespace emu = switchback_cuda_emu;

template <class F>
__global__ void call_kernel(F f) {
  f();
}

/// Launches a kernel in which every thread calls f.
template <class F>
cudaError_t launch(dim3 grid, dim3 block, F f, cudaStream_t stream = nullptr,
                   std::size_t shared_bytes = 0) {
  return emu::launch(call_kernel<F>, grid, block, shared_bytes, stream, "lambda", f);
}

/// Runs f in every thread, and returns the result of the synchronization.
template <class F>
cudaError_t run(dim3 grid, dim3 block, F f, std::size_t shared_bytes = 0) {
  if (const cudaError_t error = launch(grid, block, f, nullptr, shared_bytes)) return error;
  return cudaDeviceSynchronize();
}

/// An array in memory of the current device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> host(count_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return host;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Test fixture: resets the emulated device before and after each test.
class CudaEmu : public ::testing::Test {
 protected:
  void SetUp() override { emu::reset(); }
  void TearDown() override { emu::reset(); }
};

}  // namespace switchback::test
