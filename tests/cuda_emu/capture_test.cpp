// SPDX-License-Identifier: Apache-2.0
// Stream capture on the emulated device: recorded operations, forbidden calls, and replays.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

class CudaEmuCapture : public CudaEmu {
 protected:
  void SetUp() override {
    CudaEmu::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&s_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), cudaSuccess);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(s_, mode), cudaSuccess);
  }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus result{};
    EXPECT_EQ(cudaStreamIsCapturing(s_, &result), cudaSuccess);
    return result;
  }
  /// Expects, after a forbidden call, that the capture is invalid and that ending it returns that
  /// error.
  void expect_invalidated() {
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated);
    EXPECT_EQ(launch(
                  1, 1, [] {}, s_),
              cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  }
  /// Ends a capture in which no call has failed.
  void end() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  cudaStream_t s_ = nullptr;
  cudaStream_t other_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
};

TEST_F(CudaEmuCapture, AForkThatIsNotJoinedIsRefused) {
  const auto fork = [this] {
    begin();
    ASSERT_EQ(cudaEventRecord(fork_, s_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_, fork_), cudaSuccess);
    ASSERT_EQ(launch(
                  1, 1, [] {}, other_),
              cudaSuccess);
  };
  cudaGraph_t graph = nullptr;
  fork();
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(s_, &graph), cudaErrorStreamCaptureInvalidated);
  fork();
  EXPECT_EQ(cudaStreamEndCapture(s_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess) << "it is no longer capturing";
}

TEST_F(CudaEmuCapture, ForbiddenCallsInvalidate) {
  // Work outside of the capture, which the capture cannot wait for.
  ASSERT_EQ(cudaEventRecord(join_, other_), cudaSuccess);
  void* memory = nullptr;
  const struct {
    const char* name;
    std::function<cudaError_t()> call;
    cudaError_t error = cudaErrorStreamCaptureUnsupported;
  } forbidden[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&memory, 16); }},
      {"cudaMallocHost", [&] { return cudaMallocHost(&memory, 16); }},
      {"cudaFree", [] { return cudaFree(nullptr); }},
      {"cudaStreamSynchronize", [this] { return cudaStreamSynchronize(s_); }},
      {"cudaStreamQuery", [this] { return cudaStreamQuery(s_); }},
      {"cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); }},
      {"cudaStreamWaitEvent", [this] { return cudaStreamWaitEvent(s_, join_); },
       cudaErrorStreamCaptureIsolation},
  };
  for (const auto& entry : forbidden) {
    SCOPED_TRACE(entry.name);
    begin();
    EXPECT_EQ(entry.call(), entry.error);
    expect_invalidated();
  }
}

TEST_F(CudaEmuCapture, CapturedEventsAreNotForTheHost) {
  begin(cudaStreamCaptureModeRelaxed);
  ASSERT_EQ(cudaEventRecord(fork_, s_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  expect_invalidated();
}

TEST_F(CudaEmuCapture, TheLegacyStreamAndBlockingStreams) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed),
            cudaErrorStreamCaptureUnsupported);
  // A capture in a non-blocking stream does not affect the legacy stream.
  begin();
  EXPECT_EQ(launch(1, 1, [] {}), cudaSuccess);
  end();
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(launch(
                1, 1, [] {}, blocking),
            cudaSuccess)
      << "a question does no harm";
  EXPECT_EQ(launch(1, 1, [] {}), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CudaEmuCapture, ModesDecideWhoIsForbiddenWhat) {
  const auto in_another_thread = [] {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 16);
    }).join();
    return error;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(in_another_thread(), cudaSuccess);
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  end();

  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(in_another_thread(), cudaErrorStreamCaptureUnsupported);
  expect_invalidated();

  begin(cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  end();
}

}  // namespace
}  // namespace switchback::test
