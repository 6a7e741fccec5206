// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: every call that ran once can be captured and replayed on new data, with the same
// bits. The stream may be one that the Context has not worked on (as with torch.cuda.graph), and
// other threads may work on the legacy default stream.
#include <cuda_runtime.h>

#include <functional>
#include <thread>
#include <tuple>

#include "cuda/cuda_support.hpp"
#include "switchback/grouped.hpp"
#include "switchback/linear.hpp"

namespace switchback::test {
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

void refill(Context& context, const DeviceMatrix<float>& to, std::int64_t rows, std::int64_t cols,
            std::uint64_t seed) {
  const Matrix<float> data = normal_matrix<float>(rows, cols, seed);
  const auto bytes = static_cast<std::size_t>(rows * cols) * sizeof(float);
  context.state().runtime->copy(to.data(), bytes, data.data(), bytes, bytes, 1);
  context.synchronize();
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
      context, [&](std::uint64_t seed) { refill(context, x, m, k, seed); },
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

TEST_F(Cuda, AStepOfEveryModeCanBeCaptured) {
  for (const auto& [mode, overlap] : {std::pair{Mode::standard, false},
                                      {Mode::rowwise, false},
                                      {Mode::global, false},
                                      {Mode::global_mem_efficient, false},
                                      {Mode::rowwise, true}}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    LinearOptions layer_options;
    layer_options.in_features = k;
    layer_options.out_features = n;
    layer_options.mode = mode;
    layer_options.overlap_dw = overlap;
    SwitchbackLinear layer(context, layer_options);
    const DeviceMatrix<float> w(context, normal_matrix<float>(n, k, 9));
    const DeviceMatrix<float> bias(context, normal_matrix<float>(1, n, 10));
    const DeviceMatrix<float> x(context, m, k);
    const DeviceMatrix<float> g(context, normal_matrix<float>(m, n, 11));
    const DeviceMatrix<float> y(context, m, n);
    const DeviceMatrix<float> dx(context, m, k);
    const DeviceMatrix<float> dw(context, n, k);
    const DeviceMatrix<float> db(context, 1, n);
    layer.set_weight(w.view(), bias.view());
    LinearGrads grads;
    grads.g = g.view();
    grads.dx = dx.view();
    grads.dw = dw.view();
    grads.db = db.view();
    expect_same_captured(
        context, [&](std::uint64_t seed) { refill(context, x, m, k, seed); },
        [&] {
          layer.weight_updated();  // so that the graph quantizes the weight too
          layer.forward(x.view(), y.view(), Save::copy);
          layer.backward(grads);
        },
        [&] {
          return std::pair(std::pair(y.download(), dx.download()),
                           std::pair(dw.download(), db.download()));
        });
  }
}

// The boundaries of groups are data too: each replay reads different ones.
TEST_F(Cuda, AStepOfGroupsCanBeCaptured) {
  constexpr std::int64_t groups = 3;
  for (const Mode mode :
       {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    SwitchbackLinear layer(context,
                           {.groups = groups, .in_features = k, .out_features = n, .mode = mode});
    const DeviceMatrix<float> w(context, normal_matrix<float>(groups * n, k, 9));
    const DeviceMatrix<float> bias(context, normal_matrix<float>(groups, n, 10));
    const DeviceMatrix<float> x(context, m, k);
    const DeviceMatrix<float> g(context, normal_matrix<float>(m, n, 11));
    const DeviceMatrix<float> y(context, normal_matrix<float>(m, n, 12));
    const DeviceMatrix<float> dx(context, normal_matrix<float>(m, k, 13));
    const DeviceMatrix<float> dw(context, groups * n, k);
    const DeviceMatrix<float> db(context, groups, n);
    const DeviceMatrix<float> combined(context, m, n);
    const DeviceMatrix<std::int32_t> ends(context, 1, groups);
    const DeviceMatrix<std::int32_t> index(context, 1, m);
    layer.set_weight(w.view(), bias.view());
    const auto fill = [&](std::uint64_t seed) {
      refill(context, x, m, k, seed);
      Random random(seed);
      std::int32_t numbers[groups];
      std::int32_t rows[m];
      for (std::int64_t group = 0; group < groups; ++group)
        numbers[group] = static_cast<std::int32_t>((group == 0 ? 0 : numbers[group - 1]) +
                                                   random.below(m / groups + 1));
      for (std::int32_t& row : rows)
        row = static_cast<std::int32_t>(random.below(m));
      core::DeviceRuntime& runtime = *context.state().runtime;
      runtime.copy(ends.data(), sizeof numbers, numbers, sizeof numbers, sizeof numbers, 1);
      runtime.copy(index.data(), sizeof rows, rows, sizeof rows, sizeof rows, 1);
      context.synchronize();
    };
    expect_same_captured(
        context, fill,
        [&] {
          layer.weight_updated();
          layer.forward(Groups::packed(ends.span()), {.data = x.view(), .index = index.span()},
                        y.view(), Save::copy);
          layer.backward({.g = g.view(), .dx = dx.view(), .dw = dw.view(), .db = db.view()});
          combine(context, {.y = y.view(), .slots = {index.data(), m, 1}, .out = combined.view()});
        },
        [&] {
          return std::pair(std::pair(y.download(), dx.download()),
                           std::pair(std::pair(dw.download(), db.download()), combined.download()));
        });
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
      context, [&](std::uint64_t seed) { refill(context, x, 300, k, seed); },
      [&] { layer.forward(x.view(), y.view()); }, [&] { return y.download(); });
}

TEST_F(Cuda, ACaptureThatWouldHaveToAllocateIsRefused) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, normal_matrix<float>(m, k, 1));
  const DeviceMatrix<std::int8_t> q(context, m, k);
  const DeviceMatrix<float> sums(context, 1, k);
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  const std::size_t launched = switchback_cuda_emu::calls("launch");
  const std::string message =
      message_of(Status::invalid_state, [&] { column_sums(context, x.view(), sums.span()); });
  EXPECT_NE(
      message.find("is not possible while the stream is being captured; run the same call once "
                   "before the capture"),
      std::string::npos)
      << message;
  EXPECT_EQ(switchback_cuda_emu::calls("launch"), launched);
  EXPECT_NE(message_of(Status::invalid_state, [&] { context.synchronize(); })
                .find("waiting for the stream is not possible while"),
            std::string::npos);
  (void)runtime.end_capture();
  column_sums(context, x.view(), sums.span());  // the stream works again after the capture
  context.synchronize();
}

// A captured graph contains addresses of the workspace: later calls may add memory to the workspace
// but must not replace it.
TEST_F(Cuda, ALargerCallLeavesACapturedGraphItsWorkspace) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, m, k);
  const DeviceMatrix<float> sums(context, 1, k);
  refill(context, x, m, k, 5);
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
  refill(context, x, m, k, 7);
  graph->launch();
  const Matrix<float> replayed = sums.download();
  call();
  EXPECT_TRUE(replayed == sums.download());
}

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
