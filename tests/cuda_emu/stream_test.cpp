// SPDX-License-Identifier: Apache-2.0
// Streams and events of the emulated device: work is ordered where a dependency was requested, and
// unordered elsewhere.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

class CudaEmuStream : public CudaEmu {
 protected:
  cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t created = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&created, flags), cudaSuccess);
    return created;
  }
  // Launches a kernel that appends a digit to the decimal number at `at`.
  static cudaError_t append(long long* at, int digit, cudaStream_t on) {
    return launch(
        1, 1, [at, digit] { *at = *at * 10 + digit; }, on);
  }
};

// The different results that the same work on two streams gives over many schedules.
template <class Enqueue>
std::set<long long> outcomes(Enqueue enqueue) {
  std::set<long long> seen;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    emu::reset({.schedule_seed = seed});
    const DeviceArray<long long> number(std::vector<long long>(1, 0));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    enqueue(number.data());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    seen.insert(number.read()[0]);
  }
  return seen;
}

TEST_F(CudaEmuStream, WithoutAnEventTwoStreamsHaveNoOrder) {
  EXPECT_EQ(outcomes([this](long long* number) {
              append(number, 1, stream());
              append(number, 2, stream());
            }),
            (std::set<long long>{12, 21}));
}

TEST_F(CudaEmuStream, TheLegacyStreamOrdersBlockingStreamsAlone) {
  EXPECT_EQ(outcomes([this](long long* number) {
              append(number, 1, stream(cudaStreamDefault));
              append(number, 2, nullptr);
              append(number, 3, stream(cudaStreamDefault));
            }),
            (std::set<long long>{123}));
  EXPECT_EQ(outcomes([this](long long* number) {
              append(number, 1, stream());
              append(number, 2, nullptr);
            }),
            (std::set<long long>{12, 21}));
}

TEST_F(CudaEmuStream, AMissingSynchronizeShows) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  *pinned = 5;
  const DeviceArray<int> value(std::vector<int>(1, 0));
  const cudaStream_t s = stream();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(value.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, s),
            cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(value.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, s),
            cudaSuccess);
  *pinned = 6;  // a planted mistake: the copy from pinned memory has not run yet
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(value.read()[0], 6);
}

TEST_F(CudaEmuStream, PageableMemoryIsStagedAndWaitedFor) {
  const DeviceArray<int> value(std::vector<int>(1, 0));
  const cudaStream_t s = stream();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int host = 3;
  ASSERT_EQ(cudaMemcpyAsync(value.data(), &host, sizeof host, cudaMemcpyHostToDevice, s),
            cudaSuccess);
  host = 4;  // allowed: the copy's source has been staged
  int back = 0;
  ASSERT_EQ(cudaMemcpyAsync(&back, value.data(), sizeof back, cudaMemcpyDeviceToHost, s),
            cudaSuccess);
  EXPECT_EQ(back, 3);
}

TEST_F(CudaEmuStream, CopiesCheckTheirPointers) {
  const DeviceArray<int> device(4);
  int host[4] = {};
  EXPECT_EQ(cudaMemcpy(host, device.data(), 17, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, static_cast<cudaMemcpyKind>(9)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 16), cudaErrorInvalidValue) << "host memory";
  EXPECT_EQ(cudaMemsetAsync(device.data(), 0, 17), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace switchback::test
