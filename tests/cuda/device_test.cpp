// SPDX-License-Identifier: Apache-2.0
// Errors of devices that are missing or too old, and of pointers that belong to another device.
#include <cuda_runtime.h>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::options;

std::string refusal(const std::string& device) {
  ContextOptions o;
  o.device = device;
  return message_of(Status::device_error, [&] { const Context context(o); });
}

TEST_F(Cuda, AMissingDeviceIsNamedAndTheCpuGoesOn) {
  options().device_count = 0;
  EXPECT_EQ(refusal("emulated:0"),
            "device 'emulated:0': the NVIDIA driver finds no device; use cpu");
  options().device_count = 1;
  EXPECT_EQ(refusal("emulated:1"),
            "device 'emulated:1': this machine has 1 such device, emulated:0");
  options().device_count = 2;
  EXPECT_EQ(refusal("emulated:2"),
            "device 'emulated:2': this machine has 2 such devices, emulated:0 to emulated:1");
  const Context cpu(cpu_options());
  EXPECT_EQ(cpu.device(), "cpu");
  EXPECT_EQ(cpu.stream(), nullptr);
}

TEST_F(Cuda, AnOldDriverIsNamed) {
  options().driver_version = 11080;
  const std::string message = refusal("emulated:0");
  EXPECT_NE(message.find("the NVIDIA driver supports CUDA 11.8, and this build needs 13.0"),
            std::string::npos)
      << message;
}

TEST_F(Cuda, AnOldDeviceIsNamed) {
  options().compute_capability = 70;
  const std::string message = refusal("emulated:0");
  EXPECT_NE(message.find("has compute capability 7.0; it must be at least 7.5"), std::string::npos)
      << message;
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
  const Matrix<float> host = normal_matrix<float>(4, 8, 1);
  const DeviceMatrix<float> x(context, host);
  Matrix<std::int8_t> host_q(4, 8);
  const DeviceMatrix<std::int8_t> q(context, 4, 8);
  const DeviceMatrix<float> absmax(context, 1, 4);
  Matrix<float> host_absmax(1, 4);
  const std::span<float> host_scales(host_absmax.data(), 4);
  const std::size_t launched = switchback_cuda_emu::calls("launch");

  std::string message = message_of(Status::invalid_argument, [&] {
    quantize_rowwise(context, host.view(), q.view(), absmax.span());
  });
  EXPECT_NE(message.find("quantize_rowwise: x at 0x"), std::string::npos) << message;
  EXPECT_NE(message.find("is host memory; it must be memory of emulated:0"), std::string::npos)
      << message;
  message = message_of(Status::invalid_argument,
                       [&] { quantize_rowwise(context, x.view(), host_q.view(), absmax.span()); });
  EXPECT_NE(message.find(": q at"), std::string::npos) << message;
  message = message_of(Status::invalid_argument,
                       [&] { quantize_rowwise(context, x.view(), q.view(), host_scales); });
  EXPECT_NE(message.find(": absmax at"), std::string::npos) << message;

  GemmArgs args;
  args.a = q.view();
  const DeviceMatrix<std::int8_t> b(context, 5, 8);
  args.b = b.view();
  Matrix<float> host_d(4, 5);
  args.d = host_d.view();
  args.absmax_a = absmax.span();
  args.absmax_b = absmax.span().first(1);
  message = message_of(Status::invalid_argument, [&] { gemm(context, args); });
  EXPECT_NE(message.find("gemm: d at"), std::string::npos) << message;

  SwitchbackLinear layer(context, {.in_features = 8, .out_features = 4, .engine = ""});
  message = message_of(Status::invalid_argument, [&] { layer.set_weight(host.view()); });
  EXPECT_NE(message.find("set_weight: weight at"), std::string::npos) << message;
  EXPECT_EQ(switchback_cuda_emu::calls("launch"), launched) << "something was queued";
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

}  // namespace
}  // namespace switchback::test
