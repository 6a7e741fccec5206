// SPDX-License-Identifier: Apache-2.0
// Errors of devices that are missing or too old, and of pointers that belong to another device. A
// current device of the calling thread that is not the Context's.
#include <cuda_runtime.h>

#include <optional>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::has_context;
using switchback_cuda_emu::options;

std::string refusal(const std::string& device) {
  ContextOptions o;
  o.device = device;
  return message_of(Status::device_error, [&] { const Context context(o); });
}

TEST_F(Cuda, ADeviceThatIsMissingOrTooOldIsNamed) {
  options().device_count = 0;
  EXPECT_EQ(refusal("emulated:0"),
            "device 'emulated:0': the NVIDIA driver finds no device; use cpu");
  options().device_count = 1;
  EXPECT_EQ(refusal("emulated:1"),
            "device 'emulated:1': this machine has 1 such device, emulated:0");
  options().device_count = 2;
  EXPECT_EQ(refusal("emulated:2"),
            "device 'emulated:2': this machine has 2 such devices, emulated:0 to emulated:1");
  options().driver_version = 11080;
  std::string message = refusal("emulated:0");
  EXPECT_NE(message.find("the NVIDIA driver supports CUDA 11.8, and this build needs 13.0"),
            std::string::npos)
      << message;
  switchback_cuda_emu::reset({.compute_capability = 70});
  message = refusal("emulated:0");
  EXPECT_NE(message.find("has compute capability 7.0; it must be at least 7.5"), std::string::npos)
      << message;
  const Context cpu(cpu_options());
  EXPECT_EQ(cpu.device(), "cpu");
  EXPECT_EQ(cpu.stream(), nullptr);
}

TEST_F(Cuda, AContextTellsOfItsDevice) {
  Context context(emulated());
  EXPECT_EQ(context.device(), "emulated:0");
  EXPECT_NE(context.stream(), nullptr);
  EXPECT_EQ(context.threads(), 1);
  const core::DeviceInfo& info = context.state().runtime->info();
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.l2_bytes, 0u);
  EXPECT_FALSE(info.name.empty());
}

TEST_F(Cuda, HostPointersAreRefusedAndNothingIsWritten) {
  Context context(emulated());
  Matrix<float> host = normal_matrix<float>(4, 8, 1);
  Matrix<std::int8_t> host_q(4, 8);
  const DeviceMatrix<float> x(context, host), absmax(context, 1, 5);
  const DeviceMatrix<std::int8_t> q(context, 4, 8), b(context, 5, 8);
  const auto refuses = [&](const std::string& argument, const auto& call) {
    const std::string message = message_of(Status::invalid_argument, call);
    EXPECT_EQ(message.find(argument + " at 0x"), 0u) << message;
    EXPECT_NE(message.find("is host memory; it must be memory of emulated:0"), std::string::npos)
        << message;
  };
  const std::span<float> of_rows = absmax.span().first(4);
  GemmArgs args;
  args.a = q.view();
  args.b = b.view();
  args.d = MatrixView<float>(host.data(), 4, 5);
  args.absmax_a = of_rows;
  args.absmax_b = absmax.span();
  SwitchbackLinear layer(context, {.in_features = 8, .out_features = 4, .engine = ""});
  expect_no_calls_of({"launch"}, [&] {
    refuses("quantize_rowwise: x",
            [&] { quantize_rowwise(context, host.view(), q.view(), of_rows); });
    refuses("quantize_rowwise: q",
            [&] { quantize_rowwise(context, x.view(), host_q.view(), of_rows); });
    refuses("quantize_rowwise: absmax", [&] {
      quantize_rowwise(context, x.view(), q.view(), {host.data(), 4});
    });
    refuses("gemm: d", [&] { gemm(context, args); });
    refuses("set_weight: weight", [&] { layer.set_weight(host.view()); });
  });
}

TEST_F(Cuda, PointersOfAnotherDeviceAreRefused) {
  options().device_count = 2;
  Context first(emulated(0));
  Context second(emulated(1));
  const DeviceMatrix<float> x(first, normal_matrix<float>(4, 8, 1));
  const DeviceMatrix<std::int8_t> q(second, 4, 8);
  const DeviceMatrix<float> absmax(second, 1, 4);
  const std::string message = message_of(Status::invalid_argument, [&] {
    quantize_rowwise(second, x.view(), q.view(), absmax.span());
  });
  EXPECT_NE(message.find("x at 0x"), std::string::npos) << message;
  EXPECT_NE(message.find("is memory of cuda:0; it must be memory of emulated:1"), std::string::npos)
      << message;
}

TEST_F(Cuda, AWeightPackedElsewhereIsRefused) {
  options().device_count = 2;
  Context first(emulated(0));
  Context second(emulated(1));
  const DeviceMatrix<std::int8_t> b(first, 16, 16);
  PackedWeight packed;
  pack_weight(first, b.view(), packed);
  const DeviceMatrix<std::int8_t> a(second, 4, 16);
  const DeviceMatrix<std::int32_t> d(second, 4, 16);
  GemmS8S8S32Args args;
  args.a = a.view();
  args.packed_b = &packed;
  args.d = d.view();
  const std::string message =
      message_of(Status::invalid_argument, [&] { gemm_s8s8s32(second, args); });
  EXPECT_EQ(message,
            "gemm_s8s8s32: packed_b was packed on device emulated:0; it cannot be used on "
            "emulated:1");
}

TEST_F(Cuda, WhatOutlivesItsContextIsGivenBack) {
  PackedWeight packed;
  {
    Context context(emulated());
    const DeviceMatrix<std::int8_t> b(context, 20, 33);
    pack_weight(context, b.view(), packed);
    EXPECT_GT(packed.bytes(), 0u);
  }
  EXPECT_EQ(switchback_cuda_emu::usage().streams, 0u);
  packed = PackedWeight();
  EXPECT_EQ(switchback_cuda_emu::usage().device_bytes, 0u);
  EXPECT_EQ(switchback_cuda_emu::usage().library_handles, 0u);
}

TEST_F(Cuda, ALayerOfADestroyedContextSaysSo) {
  std::unique_ptr<SwitchbackLinear> layer;
  {
    Context context(emulated());
    layer = std::make_unique<SwitchbackLinear>(
        context, LinearOptions{.in_features = 8, .out_features = 4, .engine = ""});
  }
  const std::string message =
      message_of(Status::invalid_state, [&] { layer->forward({}, {}, Save::nothing); });
  EXPECT_NE(message.find("the layer's Context was destroyed"), std::string::npos) << message;
}

// The calling thread's current CUDA device is not the Context's, as can happen in a process with
// several GPUs. The Context's calls use its own device. The other device is neither used nor set
// up, and remains the current one.
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
  int host = 0;
  EXPECT_NE(runtime.wrong_memory(&host), "");
}

TEST_F(CurrentDeviceTest, ADeviceThatNobodyUsesIsNotSetUp) {
  for (const bool legacy : {false, true}) {
    switchback_cuda_emu::reset({.device_count = 2});
    {
      Context context(legacy ? on_legacy_stream_of(1) : emulated(1));
      use(context);
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
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    cudaStream_t other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (const cudaStream_t stream : {other, cudaStreamLegacy}) {
      context.set_stream(stream);
      context.synchronize();
    }
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
    // The matrix is freed after the work that is queued on the stream of the matrix's device.
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
