// SPDX-License-Identifier: Apache-2.0
// Streams and memory: on which stream work is queued, that calls do not wait, that memory is not
// allocated twice, and that work runs in order.
#include <cuda_runtime.h>

#include <array>
#include <optional>
#include <utility>

#include "cuda/cuda_support.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/contexts.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::calls;
using switchback_cuda_emu::options;

constexpr Mode modes[] = {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient};

TEST_F(Cuda, ASteadyStepNeitherWaitsNorAllocates) {
  for (const auto& [mode, overlap] : {std::pair{Mode::standard, false},
                                      {Mode::rowwise, false},
                                      {Mode::global, false},
                                      {Mode::global_mem_efficient, false},
                                      {Mode::rowwise, true}}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    LayerOnDevice on_device(context, mode, overlap);
    on_device.step();
    on_device.step();
    context.synchronize();
    expect_no_calls_of(
        {"cudaMallocAsync", "cudaMalloc", "cudaFreeAsync", "cudaFree", "cudaStreamSynchronize",
         "cudaDeviceSynchronize", "cudaEventSynchronize", "cublasLtMatmulAlgoGetHeuristic"},
        [&] {
          on_device.step();
          on_device.layer.weight_updated();
          on_device.step();
        });
    context.synchronize();
  }
}

// dW is computed on a second stream: if both streams used the same scratch memory, or a wait were
// missing, some order of the streams would show it.
TEST_F(Cuda, OverlappedStepsAreTheSameInAnyOrder) {
  for (const Mode mode : modes)
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      SCOPED_TRACE(mode_name(mode));
      if (mode == Mode::global_mem_efficient && activation != Activation::none) continue;
      std::optional<std::array<Matrix<float>, 4>> want;
      // ThreadSanitizer finds the same races in every order, so a few seeds are enough.
      const std::uint64_t seeds = under_thread_sanitizer ? 3 : 12;
      for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        const bool overlap = seed > 0;
        switchback_cuda_emu::reset({.schedule_seed = seed});
        Context context(emulated());
        LayerOnDevice on_device(context, mode, overlap, activation);
        const std::size_t waits = calls("cudaStreamWaitEvent");
        // The first step allocates its memory while it runs; the second finds the memory allocated.
        for (int step = 0; step < 2; ++step) {
          on_device.layer.weight_updated();
          on_device.step();
        }
        EXPECT_EQ(calls("cudaStreamWaitEvent") >= waits + 4, overlap);
        std::array<Matrix<float>, 4> got = {on_device.y.download(), on_device.dx.download(),
                                            on_device.dw.download(), on_device.db.download()};
        if (!want) want.emplace(got);
        EXPECT_TRUE(got == *want) << "seed " << seed;
      }
    }
}

TEST_F(Cuda, WorkGoesToTheCallersStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    ContextOptions o = emulated();
    o.stream = stream;
    Context context(o);
    EXPECT_EQ(context.stream(), stream);
    ProductOnDevice product(context);
    context.synchronize();
    product.run();
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "it should be queued here";
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(product.right());
  }
  // The caller's stream still exists after its Context has ended.
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Cuda, AnotherStreamFollowsTheOneBefore) {
  const Streams streams;
  const cudaStream_t first = streams.first, second = streams.second;
  const Matrix<float> host = normal_matrix<float>(5, 20, 4);
  Context cpu(cpu_options());
  Matrix<std::int8_t> want(5, 20);
  Matrix<float> scales(1, 5), back(5, 20);
  quantize_rowwise(cpu, host.view(), want.view(), {scales.data(), 5});
  dequantize_rowwise(cpu, want.view(), {scales.data(), 5}, back.view());
  for (const bool own : {false, true}) {
    ContextOptions o = emulated();
    if (!own) o.stream = first;
    Context context(o);
    const DeviceMatrix<float> x(context, host);
    const DeviceMatrix<std::int8_t> q(context, 5, 20);
    const DeviceMatrix<float> absmax(context, 1, 5);
    const DeviceMatrix<float> y(context, 5, 20);
    quantize_rowwise(context, x.view(), q.view(), absmax.span());
    // Work queued on the second stream reads data that the first stream has yet to write.
    context.set_stream(second);
    EXPECT_EQ(context.stream(), second);
    dequantize_rowwise(context, q.view(), absmax.span(), y.view());
    if (!own) {
      EXPECT_EQ(cudaStreamQuery(first), cudaErrorNotReady);
    }
    ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
    EXPECT_TRUE(y.download() == back);
    context.set_stream(second);  // set_stream() with the same stream has nothing to order
    context.synchronize();
    EXPECT_THROW(context.set_stream(nullptr), Error);
    EXPECT_EQ(context.stream(), second);
    ASSERT_EQ(cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_THROW(context.set_stream(first), Error) << "the capture would break";
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(second, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_THROW(cpu.set_stream(second), Error);
}

struct Counting {
  int live = 0;
  int asked = 0;
  bool empty = false;
  void* last_stream = nullptr;
  void* watched = nullptr;  // a stream that should not have work when memory is freed
  int freed_early = 0;      // releases of memory while `watched` had work
};
DeviceAllocator allocator_of(Counting& counting) {
  return {[](void* user, std::size_t bytes, void* stream) -> void* {
            auto& c = *static_cast<Counting*>(user);
            ++c.asked;
            c.last_stream = stream;
            void* data = nullptr;
            if (c.empty || cudaMalloc(&data, bytes) != cudaSuccess) return nullptr;
            ++c.live;
            return data;
          },
          [](void* user, void* data, std::size_t, void*) {
            auto& c = *static_cast<Counting*>(user);
            --c.live;
            if (c.watched != nullptr &&
                cudaStreamQuery(static_cast<cudaStream_t>(c.watched)) != cudaSuccess)
              ++c.freed_early;
            (void)cudaFree(data);
          },
          &counting};
}

TEST_F(Cuda, MemoryComesFromTheCallersAllocator) {
  Counting counting;
  {
    ContextOptions o = emulated();
    o.allocator = allocator_of(counting);
    Context context(o);
    LayerOnDevice on_device(context, Mode::rowwise, true);
    on_device.step();
    context.synchronize();
    EXPECT_GT(counting.asked, 0);
    EXPECT_EQ(counting.last_stream, context.stream());
    EXPECT_EQ(calls("cudaMallocAsync"), 0u);
    counting.empty = true;
    const std::string message = message_of(
        Status::out_of_memory, [&] { const DeviceMatrix<float> more(context, 1000, 1000); });
    EXPECT_NE(message.find("the Context's allocator could not allocate 4000001 bytes"),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(counting.live, 0);
}

// Codes of a weight are shared with another Context while they are still being made. The other
// stream still reads them when their layers and the first Context end.
TEST_F(Cuda, ASharedWeightIsReadAndFreedInTheOrderOfAllStreams) {
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    SCOPED_TRACE(mode_name(mode));
    std::optional<Matrix<float>> want;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      switchback_cuda_emu::reset({.schedule_seed = seed});
      Counting counting;
      ContextOptions of_first = emulated();
      of_first.allocator = allocator_of(counting);
      Context second(emulated());
      const DeviceMatrix<float> x(second,
                                  normal_matrix<float>(LayerOnDevice::m, LayerOnDevice::k, 2));
      const DeviceMatrix<float> y(second, LayerOnDevice::m, LayerOnDevice::n);
      const DeviceMatrix<float> w(second,
                                  normal_matrix<float>(LayerOnDevice::n, LayerOnDevice::k, 1));
      second.synchronize();
      counting.watched = second.stream();
      {
        Context first(of_first);
        SwitchbackLinear layer(first, LayerOnDevice::options_of(mode, false, Activation::none));
        layer.set_weight(w.view());
        layer.prepare_for_eval();
        const int allocated = counting.asked;
        SwitchbackLinear other = layer.share(second);
        EXPECT_EQ(counting.asked, allocated);
        other.forward(x.view(), y.view());
        EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(second.stream())), cudaErrorNotReady);
      }
      EXPECT_EQ(counting.live, 0);
      EXPECT_EQ(counting.freed_early, 0);
      const Matrix<float> got = y.download();
      if (!want) want.emplace(got);
      EXPECT_TRUE(got == *want) << "seed " << seed;
    }
  }
}

TEST_F(Cuda, NoWeightIsSharedWithAStreamThatIsCaptured) {
  Context first(emulated());
  LayerOnDevice on_device(first, Mode::rowwise);
  on_device.layer.prepare_for_eval();
  Context second(emulated());
  cudaStream_t stream = static_cast<cudaStream_t>(second.stream());
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(message_of(Status::invalid_state, [&] { (void)on_device.layer.share(second); }),
            "waiting for the device is not possible while the stream is being captured; run the "
            "same call once before the capture");
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(Cuda, HalfAnAllocatorIsRefused) {
  ContextOptions o = emulated();
  Counting counting;
  o.allocator = allocator_of(counting);
  o.allocator.release = nullptr;
  EXPECT_NE(message_of(Status::invalid_argument, [&] { const Context context(o); })
                .find("only one of allocate and release"),
            std::string::npos);
}

// The two streams may run their work in any order, and row panels may be very small: a missing wait
// between streams would show as sums that were overwritten or read too early.
TEST_F(Cuda, RowPanelsOnTwoStreamsAreExactInAnyOrder) {
  const std::int64_t m = 1100, n = 70, k = 45;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    options().schedule_seed = seed;
    Context context(emulated());
    ProductOnDevice product(context, m, n, k);
    const Matrix<float> want = product.scaled("dp4a");
    for (const std::int64_t rows : {128, 320, 545, 4096}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", panels of " << rows);
      gemm_int8::GemmProblem p;
      p.m = m;
      p.n = p.stride_d = n;
      p.k = p.stride_a = p.stride_b = k;
      p.output = DType::f32;
      p.scale = gemm_int8::ScaleMode::row_col;
      gemm_int8::GemmConfig config;
      config.engine = gemm_int8::EngineId::cublaslt_panels;
      config.mc = rows;
      gemm_int8::GemmOperands o;
      o.a = product.a.data();
      o.b = product.b.data();
      o.d = product.d.data();
      o.absmax_a = product.absmax_a.data();
      o.absmax_b = product.absmax_b.data();
      product.d.fill(0x55);
      gemm_int8::run(context, p, config, o);
      EXPECT_TRUE(product.d.download() == want);
    }
  }
}

}  // namespace
}  // namespace switchback::test
