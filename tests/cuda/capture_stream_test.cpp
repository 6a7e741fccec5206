// SPDX-License-Identifier: Apache-2.0
// Captures and streams: a capture on a stream that the Context has not worked on (as
// torch.cuda.graph does), and captures while other threads work on the legacy default stream.
#include <cuda_runtime.h>

#include <functional>
#include <thread>
#include <tuple>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

struct Streams {
  Streams() {
    for (cudaStream_t* stream : {&first, &second})
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Streams() {
    for (const cudaStream_t stream : {first, second})
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
};

// Captures a call on a stream whose owner begins and ends the capture. Returns the executable
// graph; null if the capture fails.
cudaGraphExec_t captured(Context& context, cudaStream_t stream, const std::function<void()>& call) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  context.set_stream(stream);
  EXPECT_TRUE(context.state().runtime->capturing());
  call();
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) return nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return executable;
}

void refill(Context& context, const DeviceMatrix<float>& to, const Matrix<float>& data) {
  const std::size_t bytes = to.span().size_bytes();
  context.state().runtime->copy(to.data(), bytes, data.data(), bytes, bytes, 1);
  context.synchronize();
}

TEST_F(Cuda, AStreamThatIsBeingCapturedIsTakenUp) {
  for (const auto& [mode, overlap] : {std::pair{Mode::standard, false},
                                      {Mode::rowwise, false},
                                      {Mode::global, false},
                                      {Mode::global_mem_efficient, false},
                                      {Mode::rowwise, true}})
    for (const bool own : {false, true}) {
      SCOPED_TRACE(mode_name(mode));
      const Streams streams;
      ContextOptions o = emulated();
      if (!own) o.stream = streams.first;
      Context context(o);
      LayerOnDevice on_device(context, mode, overlap);
      on_device.step();
      on_device.step();
      // torch.cuda.graph waits for the device too, before it captures.
      context.synchronize();
      const cudaGraphExec_t graph = captured(context, streams.second, [&] {
        on_device.layer.weight_updated();  // so that the graph quantizes the weight too
        on_device.step();
      });
      ASSERT_NE(graph, nullptr);

      const auto results = [&] {
        return std::tuple(on_device.y.download(), on_device.dx.download(), on_device.dw.download(),
                          on_device.db.download());
      };
      for (const std::uint64_t seed : {12, 13}) {
        refill(context, on_device.x,
               normal_matrix<float>(LayerOnDevice::m, LayerOnDevice::k, seed));
        ASSERT_EQ(cudaGraphLaunch(graph, streams.second), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(streams.second), cudaSuccess);
        const auto replayed = results();
        context.set_stream(streams.first);
        on_device.layer.weight_updated();
        on_device.step();
        EXPECT_TRUE(replayed == results()) << "data of seed " << seed;
      }
      ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    }
}

// After a capture the workspace belongs to the graph: calls that need more memory add to the
// workspace.
TEST_F(Cuda, ACaptureOnAnotherStreamKeepsItsWorkspace) {
  const Streams streams;
  ContextOptions o = emulated();
  o.stream = streams.first;
  Context context(o);
  const Matrix<float> data = normal_matrix<float>(33, 37, 5);
  const DeviceMatrix<float> x(context, data);
  const DeviceMatrix<float> sums(context, 1, 37);
  column_sums(context, x.view(), sums.span());
  context.synchronize();
  const cudaGraphExec_t graph =
      captured(context, streams.second, [&] { column_sums(context, x.view(), sums.span()); });
  ASSERT_NE(graph, nullptr);
  context.set_stream(streams.first);
  const DeviceMatrix<float> large(context, normal_matrix<float>(2000, 700, 6));
  const DeviceMatrix<float> large_sums(context, 1, 700);
  for (int i = 0; i < 2; ++i)
    column_sums(context, large.view(), large_sums.span());
  refill(context, x, normal_matrix<float>(33, 37, 7));
  ASSERT_EQ(cudaGraphLaunch(graph, streams.second), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(streams.second), cudaSuccess);
  const Matrix<float> replayed = sums.download();
  column_sums(context, x.view(), sums.span());
  EXPECT_TRUE(replayed == sums.download());
  ASSERT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

TEST_F(Cuda, AFirstCallInACaptureIsRefusedAndTheCaptureGoesOn) {
  const Streams streams;
  ContextOptions o = emulated();
  o.stream = streams.first;
  Context context(o);
  LayerOnDevice on_device(context, Mode::rowwise);
  const DeviceMatrix<float> sums(context, 1, LayerOnDevice::k);
  ASSERT_EQ(cudaStreamBeginCapture(streams.second, cudaStreamCaptureModeGlobal), cudaSuccess);
  context.set_stream(streams.second);
  const std::string message = message_of(Status::invalid_state, [&] { on_device.step(); });
  EXPECT_NE(
      message.find("is not possible while the stream is being captured; run the same call once "
                   "before the capture"),
      std::string::npos)
      << message;
  EXPECT_NE(message_of(Status::invalid_state, [&] { context.set_stream(streams.first); }), "")
      << "work is queued where it would not be captured";
  ASSERT_EQ(cudaMemsetAsync(sums.data(), 0, sums.span().size_bytes(), streams.second), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(streams.second, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  context.set_stream(streams.first);
  on_device.step();
  context.synchronize();
}

// The library captures on its own stream while another thread uses the legacy default stream, which
// is ordered with every blocking stream.
TEST_F(Cuda, WorkOnTheLegacyStreamDoesNotEndACapture) {
  Context context(emulated());
  LayerOnDevice on_device(context, Mode::rowwise, true);
  const DeviceMatrix<float> others(context, 10, 10);
  on_device.step();
  on_device.step();
  context.synchronize();
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  on_device.step();
  std::thread([&] {
    EXPECT_EQ(cudaMemsetAsync(others.data(), 0, others.span().size_bytes(), cudaStreamLegacy),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
  }).join();
  on_device.step();
  const auto graph = runtime.end_capture();
  refill(context, on_device.x, normal_matrix<float>(LayerOnDevice::m, LayerOnDevice::k, 9));
  graph->launch();
  const Matrix<float> replayed = on_device.y.download();
  on_device.step();
  EXPECT_TRUE(replayed == on_device.y.download());
}

// A caller that names no stream works on the legacy default stream. Neither this caller nor the
// Context waits for the other explicitly.
TEST_F(Cuda, TheContextsOwnStreamIsOrderedWithTheLegacyStream) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    switchback_cuda_emu::Options schedule;
    schedule.schedule_seed = seed;
    switchback_cuda_emu::reset(schedule);
    Context context(emulated());
    const Matrix<float> data = normal_matrix<float>(20, 30, 5);
    const DeviceMatrix<float> x(context, data);
    const DeviceMatrix<float> sums(context, 1, 30);
    column_sums(context, x.view(), sums.span());
    const Matrix<float> want = sums.download();
    core::DeviceRuntime& runtime = *context.state().runtime;
    runtime.begin_capture();
    column_sums(context, x.view(), sums.span());
    const auto graph = runtime.end_capture();
    for (const bool launches : {false, true}) {
      SCOPED_TRACE(launches ? "a graph" : "a call");
      ASSERT_EQ(cudaMemsetAsync(x.data(), 0, x.span().size_bytes(), nullptr), cudaSuccess);
      Matrix<float> read(1, 30);
      for (const bool zero : {true, false}) {
        if (!zero) {
          ASSERT_EQ(cudaMemcpyAsync(x.data(), data.data(), x.span().size_bytes(),
                                    cudaMemcpyHostToDevice, nullptr),
                    cudaSuccess);
        }
        if (launches)
          graph->launch();
        else
          column_sums(context, x.view(), sums.span());
        ASSERT_EQ(
            cudaMemcpy(read.data(), sums.data(), sums.span().size_bytes(), cudaMemcpyDeviceToHost),
            cudaSuccess);
        EXPECT_TRUE(read == (zero ? Matrix<float>(1, 30) : want)) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace switchback::test
