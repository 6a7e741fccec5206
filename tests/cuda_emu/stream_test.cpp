// SPDX-License-Identifier: Apache-2.0
// Streams and events: order where it was asked for, and none where it was not.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
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
  cudaEvent_t event(unsigned flags = cudaEventDefault) {
    cudaEvent_t created = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&created, flags), cudaSuccess);
    return created;
  }
  // Appends a digit to the number at `at`.
  static cudaError_t append(long long* at, int digit, cudaStream_t on) {
    return launch(
        1, 1, [at, digit] { *at = *at * 10 + digit; }, on);
  }
};

TEST_F(CudaEmuStream, AStreamKeepsItsOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    emu::reset();
    emu::options().schedule_seed = seed;
    const DeviceArray<long long> number(std::vector<long long>(1, 0));
    const cudaStream_t s = stream();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 1; i < 8; ++i)
      ASSERT_EQ(append(number.data(), i, s), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    EXPECT_EQ(number.read()[0], 1234567);
    EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  }
}

// What the results of two streams look like over many schedules.
template <class Enqueue>
std::set<long long> outcomes(Enqueue enqueue) {
  std::set<long long> seen;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    emu::Options options;
    options.schedule_seed = seed;
    emu::reset(options);
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

TEST_F(CudaEmuStream, AnEventOrdersTwoStreams) {
  EXPECT_EQ(outcomes([this](long long* number) {
              const cudaStream_t a = stream();
              const cudaStream_t b = stream();
              const cudaEvent_t e = event(cudaEventDisableTiming);
              append(number, 1, a);
              EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
              EXPECT_EQ(cudaStreamWaitEvent(b, e), cudaSuccess);
              append(number, 2, b);
            }),
            (std::set<long long>{12}));
}

TEST_F(CudaEmuStream, AnEventStandsForWhatWasQueuedWhenItWasRecorded) {
  EXPECT_EQ(outcomes([this](long long* number) {
              const cudaStream_t a = stream();
              const cudaStream_t b = stream();
              const cudaEvent_t e = event();
              append(number, 1, a);
              cudaEventRecord(e, a);
              cudaStreamWaitEvent(b, e);
              cudaEventRecord(e, a);  // the wait is for the earlier record
              append(number, 2, a);
              append(number, 3, b);
            }),
            (std::set<long long>{123, 132}));
}

TEST_F(CudaEmuStream, WaitingForAnEventThatWasNotRecordedIsNothing) {
  const cudaStream_t s = stream();
  EXPECT_EQ(cudaStreamWaitEvent(s, event()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
}

TEST_F(CudaEmuStream, TheLegacyStreamOrdersBlockingStreamsAlone) {
  EXPECT_EQ(outcomes([this](long long* number) {
              append(number, 1, stream(cudaStreamDefault));
              append(number, 2, nullptr);
              append(number, 3, stream(cudaStreamDefault));
            }),
            (std::set<long long>{123}));
  EXPECT_EQ(outcomes([](long long* number) {
              append(number, 1, cudaStreamPerThread);
              append(number, 2, cudaStreamLegacy);
            }),
            (std::set<long long>{12}));
  EXPECT_EQ(outcomes([this](long long* number) {
              append(number, 1, stream());
              append(number, 2, nullptr);
            }),
            (std::set<long long>{12, 21}));
}

TEST_F(CudaEmuStream, AMissingSynchronizeShows) {
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  *pinned = 0;
  const DeviceArray<int> value(std::vector<int>(1, 5));
  const cudaStream_t s = stream();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, value.data(), sizeof(int), cudaMemcpyDeviceToHost, s),
            cudaSuccess);
  EXPECT_EQ(*pinned, 0) << "it has not run yet";
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(*pinned, 5);
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(CudaEmuStream, EagerWorkRunsWhenItIsQueued) {
  emu::options().deferred = false;
  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  *pinned = 0;
  ASSERT_EQ(launch(
                1, 1, [pinned] { *pinned = 7; }, stream()),
            cudaSuccess);
  EXPECT_EQ(*pinned, 7);
}

TEST_F(CudaEmuStream, PageableMemoryIsStagedAndWaitedFor) {
  const DeviceArray<int> value(std::vector<int>(1, 0));
  const cudaStream_t s = stream();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  int host = 3;
  ASSERT_EQ(cudaMemcpyAsync(value.data(), &host, sizeof host, cudaMemcpyHostToDevice, s),
            cudaSuccess);
  host = 4;  // allowed: the copy has been staged
  int back = 0;
  ASSERT_EQ(cudaMemcpyAsync(&back, value.data(), sizeof back, cudaMemcpyDeviceToHost, s),
            cudaSuccess);
  EXPECT_EQ(back, 3);

  int* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, sizeof(int)), cudaSuccess);
  *pinned = 5;
  ASSERT_EQ(cudaMemcpyAsync(value.data(), pinned, sizeof(int), cudaMemcpyHostToDevice, s),
            cudaSuccess);
  *pinned = 6;  // a mistake: the copy has not run
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(value.read()[0], 6);
}

TEST_F(CudaEmuStream, CopiesAndFillsOfRows) {
  const DeviceArray<unsigned char> device(std::vector<unsigned char>(40, 1));
  ASSERT_EQ(cudaMemset2DAsync(device.data() + 1, 10, 7, 3, 4), cudaSuccess);
  std::vector<unsigned char> host(12, 0);
  ASSERT_EQ(cudaMemcpy2D(host.data(), 3, device.data(), 10, 3, 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
  EXPECT_EQ(host, (std::vector<unsigned char>{1, 7, 7, 1, 7, 7, 1, 7, 7, 1, 7, 7}));
  EXPECT_EQ(cudaMemcpy2D(host.data(), 2, device.data(), 10, 3, 4, cudaMemcpyDeviceToHost),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2D(host.data(), 3, device.data() + 8, 10, 3, 4, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue)
      << "its last row would end behind the allocation";
}

TEST_F(CudaEmuStream, CopiesCheckTheirPointers) {
  const DeviceArray<int> device(4);
  int host[4] = {};
  EXPECT_EQ(cudaMemcpy(host, device.data(), 17, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, static_cast<cudaMemcpyKind>(9)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(host, device.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemset(host, 0, 16), cudaErrorInvalidValue) << "host memory";
  EXPECT_EQ(cudaMemset(device.data(), 0, 17), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(nullptr, device.data(), 0, cudaMemcpyDeviceToDevice), cudaSuccess);
}

TEST_F(CudaEmuStream, EventsTellTheHost) {
  const cudaStream_t s = stream();
  const cudaEvent_t start = event();
  const cudaEvent_t end = event();
  EXPECT_EQ(cudaEventQuery(start), cudaSuccess) << "not recorded";
  float ms = -1.0f;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(start, s), cudaSuccess);
  ASSERT_EQ(launch(
                1, 1, [] {}, s),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, s), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  int queries = 0;
  while (cudaEventQuery(end) == cudaErrorNotReady)
    ++queries;
  EXPECT_GE(queries, 1);
  EXPECT_LE(queries, 3) << "each query lets something run";
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0.0f);
  const cudaEvent_t untimed = event(cudaEventDisableTiming);
  ASSERT_EQ(cudaEventRecord(untimed, s), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(untimed), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, s), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaEmuStream, ADestroyedStreamFinishesItsWork) {
  const DeviceArray<int> value(std::vector<int>(1, 0));
  const cudaStream_t s = stream();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(launch(
                1, 1, [value = value.data()] { *value = 9; }, s),
            cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(emu::usage().streams, 0u);
  EXPECT_EQ(emu::usage().queued, 1u);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(emu::usage().queued, 0u);
  EXPECT_EQ(value.read()[0], 9);
}

TEST_F(CudaEmuStream, HostFunctionsRunInOrderAndMayNotCallBack) {
  struct Seen {
    int* pinned = nullptr;
    int value = 0;
    cudaError_t error = cudaSuccess;
  } seen;
  ASSERT_EQ(cudaMallocHost(&seen.pinned, sizeof(int)), cudaSuccess);
  const cudaStream_t s = stream();
  ASSERT_EQ(launch(
                1, 1, [p = seen.pinned] { *p = 11; }, s),
            cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(
                s,
                [](void* data) {
                  auto* to = static_cast<Seen*>(data);
                  to->value = *to->pinned;
                  to->error = cudaDeviceSynchronize();
                },
                &seen),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(seen.value, 11);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
}

TEST_F(CudaEmuStream, HandlesBelongToADevice) {
  emu::options().device_count = 2;
  const cudaStream_t first = stream();
  const cudaEvent_t event_of_first = event();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(
                1, 1, [] {}, first),
            cudaErrorInvalidResourceHandle);
  const cudaStream_t second = stream();
  EXPECT_EQ(cudaEventRecord(event_of_first, second), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event_of_first, first), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(second, event_of_first), cudaSuccess) << "waiting crosses devices";
  int device = -1;
  EXPECT_EQ(cudaStreamGetDevice(first, &device), cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaStreamGetDevice(nullptr, &device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
}

TEST_F(CudaEmuStream, ThreadsHaveTheirOwnDeviceErrorAndStream) {
  emu::options().device_count = 2;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(5), cudaErrorInvalidDevice);
  std::thread([] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(run(2, 64, [] { __syncthreads(); }), cudaSuccess);
  }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(run(2, 64, [] { __syncthreads(); }), cudaSuccess) << "fibers move between OS threads";
}

}  // namespace
}  // namespace switchback::test
