// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: every call that ran once can be captured and replayed on new data, with the same
// bits.
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

}  // namespace
}  // namespace switchback::test
