// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: every call that ran once can be captured and replayed on new data, with the same
// bits. The stream may be one that the Context has not worked on (as with torch.cuda.graph), and
// other threads may work on the legacy default stream.
#include <cuda_runtime.h>

#include <functional>
#include <thread>
#include <tuple>

#include "cuda/grouped_support.hpp"
#include "switchback/linear.hpp"

namespace switchback::test::captures {
namespace {

constexpr std::int64_t m = 33, n = 48, k = 37;

// Runs `call` once, then captures it and replays the graph on other inputs. The results must have
// the bits of direct runs on these inputs.
template <class Fill, class Call, class Read>
void expect_same_captured(Context& context, Fill fill, Call call, Read read) {
  fill(1);
  call();  // this first run allocates the memory
  context.synchronize();
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  call();
  const std::unique_ptr<core::DeviceGraph> graph = runtime.end_capture();
  for (const std::uint64_t seed : {2, 3}) {
    fill(seed);
    graph->launch();
    const auto captured = read();
    call();
    EXPECT_TRUE(captured == read()) << "data of seed " << seed;
  }
}

// Fills a matrix with data of this seed, and waits for that.
void refill(const DeviceMatrix<float>& to, std::uint64_t seed) {
  to.upload(normal_matrix<float>(to.view().rows, to.view().cols, seed));
  to.context().synchronize();
}

TEST_F(Cuda, EveryQuantizeOperationCanBeCaptured) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, m, k);
  const DeviceMatrix<std::int8_t> q(context, m, k);
  const DeviceMatrix<std::int8_t> q_t(context, k, m);
  const DeviceMatrix<float> rows(context, 1, m);
  const DeviceMatrix<float> cols(context, 1, k);
  const DeviceMatrix<float> one(context, 1, 1);
  const DeviceMatrix<float> back(context, m, k);
  expect_same_captured(
      context, [&](std::uint64_t seed) { refill(x, seed); },
      [&] {
        quantize_rowwise(context, x.view(), q.view(), rows.span());
        dequantize_rowwise(context, q.view(), rows.span(), back.view());
        quantize_columnwise_transpose(context, x.view(), q_t.view(), cols.span());
        quantize_global(context, x.view(), q.view(), one.span());
        quantize_global_transpose(context, x.view(), q_t.view(), one.span());
        quantize_global_and_transpose(context, x.view(), q.view(), q_t.view(), one.span());
        quantize_rowwise_and_columnwise_transpose(context, x.view(), q.view(), rows.span(),
                                                  q_t.view(), cols.span());
        column_sums(context, x.view(), cols.span());
        quantize_rowwise_column_sums(context, x.view(), q.view(), rows.span(), cols.span());
      },
      [&] { return std::pair(q.download(), std::pair(back.download(), cols.download())); });
}

// The boundaries of groups are data too: each replay reads different ones.
TEST_F(Cuda, AStepOfGroupsCanBeCaptured) {
  for (const Mode mode :
       {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    GroupedOnDevice step(context, mode);
    constexpr std::int64_t slots = GroupedOnDevice::m, groups = GroupedOnDevice::groups;
    const DeviceMatrix<float> combined(context, slots, GroupedOnDevice::n);
    const auto fill = [&](std::uint64_t seed) {
      Random random(seed);
      Matrix<std::int32_t> ends(1, groups), index(1, slots);
      std::int64_t end = 0;
      for (std::int64_t group = 0; group < groups; ++group) {
        end += random.below(slots / groups + 1);
        ends.set(0, group, static_cast<std::int32_t>(end));
      }
      for (std::int64_t slot = 0; slot < slots; ++slot)
        index.set(0, slot, static_cast<std::int32_t>(random.below(GroupedOnDevice::x_rows)));
      step.ends.upload(ends);
      step.index.upload(index);
      refill(step.x, seed);
    };
    expect_same_captured(
        context, fill,
        [&] {
          step.layer.weight_updated();
          step.forward(Save::copy);
          step.backward(false);
          combine(
              context,
              {.y = step.y.view(), .slots = {step.index.data(), slots, 1}, .out = combined.view()});
        },
        [&] { return std::pair(step.outputs(), combined.download()); });
  }
}

TEST_F(Cuda, RowPanelsCanBeCaptured) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, 300, k);
  const DeviceMatrix<float> w(context, normal_matrix<float>(n, k, 12));
  SwitchbackLinear layer(
      context,
      {.in_features = k, .out_features = n, .mode = Mode::rowwise, .engine = "cublaslt_panels"});
  layer.set_weight(w.view());
  const DeviceMatrix<float> y(context, 300, n);
  expect_same_captured(
      context, [&](std::uint64_t seed) { refill(x, seed); },
      [&] { layer.forward(x.view(), y.view()); }, [&] { return y.download(); });
}

// A captured graph contains addresses of the workspace: later calls may add memory to the workspace
// but must not replace it.
TEST_F(Cuda, ALargerCallLeavesACapturedGraphItsWorkspace) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, m, k);
  const DeviceMatrix<float> sums(context, 1, k);
  refill(x, 5);
  const auto call = [&] { column_sums(context, x.view(), sums.span()); };
  call();
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  call();
  const auto graph = runtime.end_capture();
  const DeviceMatrix<float> large(context, normal_matrix<float>(2000, 700, 6));
  const DeviceMatrix<float> large_sums(context, 1, 700);
  column_sums(context, large.view(), large_sums.span());
  column_sums(context, large.view(), large_sums.span());
  refill(x, 7);
  graph->launch();
  const Matrix<float> replayed = sums.download();
  call();
  EXPECT_TRUE(replayed == sums.download());
}

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
        refill(on_device.x, seed);
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

TEST_F(Cuda, AFirstCallInACaptureIsRefusedAndTheCaptureGoesOn) {
  const Streams streams;
  ContextOptions o = emulated();
  o.stream = streams.first;
  Context context(o);
  LayerOnDevice on_device(context, Mode::rowwise);
  const DeviceMatrix<float> sums(context, 1, LayerOnDevice::k);
  ASSERT_EQ(cudaStreamBeginCapture(streams.second, cudaStreamCaptureModeGlobal), cudaSuccess);
  context.set_stream(streams.second);
  std::string message;
  expect_no_calls_of(
      {"launch"}, [&] { message = message_of(Status::invalid_state, [&] { on_device.step(); }); });
  EXPECT_NE(
      message.find("is not possible while the stream is being captured; run the same call once "
                   "before the capture"),
      std::string::npos)
      << message;
  EXPECT_NE(message_of(Status::invalid_state, [&] { context.synchronize(); })
                .find("waiting for the stream is not possible while"),
            std::string::npos);
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
  refill(on_device.x, 9);
  graph->launch();
  const Matrix<float> replayed = on_device.y.download();
  on_device.step();
  EXPECT_TRUE(replayed == on_device.y.download());
}

// A caller that names no stream works on the legacy default stream. Neither this caller nor the
// Context waits for the other explicitly.
TEST_F(Cuda, TheContextsOwnStreamIsOrderedWithTheLegacyStream) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    switchback_cuda_emu::reset({.schedule_seed = seed});
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
}  // namespace switchback::test::captures
