// SPDX-License-Identifier: Apache-2.0
// The calling thread's current CUDA device is not the Context's, as can happen in a process with
// several GPUs. The Context's calls use its own device. The other device is neither used nor set
// up, and remains the current one.
#include <cuda_runtime.h>

#include <optional>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::has_context;
using switchback_cuda_emu::options;

class CurrentDeviceTest : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    options().device_count = 2;
  }
  static int current() {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
  }
  // The handle of the legacy default stream is the same for all devices.
  static ContextOptions on_legacy_stream_of(int device) {
    ContextOptions o = emulated(device);
    o.stream = cudaStreamLegacy;
    return o;
  }
};

// Uses a Context for everything that it does with its device.
void use(Context& context) {
  for (const bool overlap : {false, true}) {
    LayerOnDevice on_device(context, Mode::rowwise, overlap);
    on_device.step();
    on_device.step();
    (void)on_device.y.download();
  }
  core::DeviceRuntime& runtime = *context.state().runtime;
  EXPECT_GT(runtime.free_bytes(), 0u);
  const auto timer = runtime.make_timer();
  timer->start();
  timer->stop();
  EXPECT_GE(timer->seconds(), 0.0);
  runtime.begin_capture();
  EXPECT_TRUE(runtime.capturing());
  const auto graph = runtime.end_capture();
  graph->launch();
  EXPECT_FALSE(runtime.capturing());
  core::AlignedBuffer seen(runtime.visible_memory());
  seen.reserve(100);
  cudaStream_t other = nullptr;
  int host = 0;
  EXPECT_NE(runtime.wrong_memory(&host), "");
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  context.set_stream(other);
  context.synchronize();
  context.set_stream(cudaStreamLegacy);
  context.synchronize();
}

TEST_F(CurrentDeviceTest, ADeviceThatNobodyUsesIsNotSetUp) {
  for (const bool legacy : {false, true}) {
    switchback_cuda_emu::reset();
    options().device_count = 2;
    {
      Context context(legacy ? on_legacy_stream_of(1) : emulated(1));
      LayerOnDevice on_device(context, Mode::rowwise);
      on_device.step();
      context.synchronize();
      core::DeviceRuntime& runtime = *context.state().runtime;
      const auto timer = runtime.make_timer();
      timer->start();
      timer->stop();
      EXPECT_GE(timer->seconds(), 0.0);
      runtime.begin_capture();
      const auto graph = runtime.end_capture();
      graph->launch();
      core::AlignedBuffer seen(runtime.visible_memory());
      seen.reserve(100);
      int host = 0;
      EXPECT_NE(runtime.wrong_memory(&host), "");
      EXPECT_FALSE(runtime.capturing());
      EXPECT_EQ(current(), 0);
      EXPECT_FALSE(has_context(0));
    }
    EXPECT_TRUE(has_context(1));
    EXPECT_FALSE(has_context(0)) << "not even when everything is given back";
    EXPECT_EQ(current(), 0);
    EXPECT_EQ(switchback_cuda_emu::usage().device_bytes, 0u);
    EXPECT_EQ(switchback_cuda_emu::usage().streams, 0u);
    EXPECT_EQ(switchback_cuda_emu::usage().events, 0u);
  }
}

TEST_F(CurrentDeviceTest, ADeviceInUseIsTheCurrentOneAgain) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_TRUE(has_context(0));
  {
    Context context(on_legacy_stream_of(1));
    use(context);
    EXPECT_EQ(current(), 0);
  }
  EXPECT_EQ(current(), 0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// If a stream of the current device is being captured, CUDA's query about that device's default
// stream returns an error. The Context must query its own device.
TEST_F(CurrentDeviceTest, ACaptureOnTheCurrentDeviceIsNotAskedAbout) {
  Context context(on_legacy_stream_of(1));
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  LayerOnDevice on_device(context, Mode::rowwise);
  on_device.step();
  context.synchronize();
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  on_device.step();
  EXPECT_FALSE(context.state().runtime->capturing());
  {
    const DeviceMatrix<float> more(context, 30, 30);
    // The matrix is freed after the work that is queued on the stream of its own device.
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  context.synchronize();
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

// An error while memory is released is not reported, so a later call must not find it as CUDA's
// last error either.
TEST_F(CurrentDeviceTest, AFailureThatIsIgnoredLeavesNoLastError) {
  Context context(emulated(1));
  for (const char* name : {"cudaFreeAsync", "cudaSetDevice"}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    std::optional<DeviceMatrix<float>> matrix;
    matrix.emplace(context, 3, 3);
    context.synchronize();
    options().fail_call_name = name;
    options().fail_call_after = 0;
    options().fail_call_error = cudaErrorInvalidValue;
    matrix.reset();
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    options().fail_call_after = -1;
  }
}

}  // namespace
}  // namespace switchback::test
