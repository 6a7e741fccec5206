// SPDX-License-Identifier: Apache-2.0
#include "studies/models/engine.hpp"

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "studies/models/cuda/kernels.hpp"

namespace switchback::models::cuda {

namespace {

using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

// Calls `start` to launch kernels on the Context's stream, unless this is a dry run.
template <class Start>
void queue(const ContextState& state, std::string_view kernel, const Start& start) {
  Runtime& device = runtime(state);
  if (device.is_dry_run()) return;
  const CurrentDevice current(device.index());
  check(start(device.cuda_stream()), kernel);
}

bool is_empty(const ConstAnyMatrix& m) {
  return m.rows == 0 || m.cols == 0;
}

void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y) {
  if (is_empty(y)) return;
  queue(state, "kernel embed", [&](cudaStream_t stream) {
    return launch_embed(stream, tokens.data(), table, positions, y);
  });
}

void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate) {
  if (dy.cols == 0) return;
  queue(state, "kernel embed_backward", [&](cudaStream_t stream) {
    return launch_embed_backward(stream, tokens.data(), dy, dtable, dpositions, accumulate);
  });
}

void rms_norm(ContextState& state, const RmsNorm& args) {
  if (is_empty(args.x)) return;
  queue(state, "kernel rms_norm",
        [&](cudaStream_t stream) { return launch_rms_norm(stream, args); });
}

std::int64_t norm_blocks(std::int64_t rows) {
  return (rows + norm_block_rows - 1) / norm_block_rows;
}

void rms_norm_backward(ContextState& state, const RmsNormBackward& args) {
  if (is_empty(args.s)) return;
  core::Workspace::Frame frame(state.workspace);
  auto* const sums = frame.take<float>(norm_blocks(args.s.rows) * args.s.cols);
  queue(state, "kernel rms_norm_backward",
        [&](cudaStream_t stream) { return launch_rms_norm_backward(stream, args, sums); });
}

void layer_norm(ContextState& state, const LayerNorm& args) {
  if (is_empty(args.x)) return;
  queue(state, "kernel layer_norm",
        [&](cudaStream_t stream) { return launch_layer_norm(stream, args); });
}

void layer_norm_backward(ContextState& state, const LayerNormBackward& args) {
  if (is_empty(args.s)) return;
  core::Workspace::Frame frame(state.workspace);
  auto* const sums = frame.take<float>(2 * norm_blocks(args.s.rows) * args.s.cols);
  queue(state, "kernel layer_norm_backward",
        [&](cudaStream_t stream) { return launch_layer_norm_backward(stream, args, sums); });
}

void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse) {
  if (is_empty(qkv)) return;
  queue(state, "kernel rope",
        [&](cudaStream_t stream) { return launch_rope(stream, args, qkv, inverse); });
}

void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* /*times*/) {
  if (is_empty(out)) return;
  queue(state, "kernel attention", [&](cudaStream_t stream) {
    return launch_attention(stream, shape, qkv, out, logsumexp.data());
  });
}

void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* /*times*/) {
  if (is_empty(out)) return;
  core::Workspace::Frame frame(state.workspace);
  auto* const dots = frame.take<float>(shape.rows() * shape.heads);
  queue(state, "kernel attention_backward", [&](cudaStream_t stream) {
    return launch_attention_backward(stream, shape, qkv, out, logsumexp.data(), dout, dots, dqkv);
  });
}

void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h) {
  if (is_empty(h)) return;
  queue(state, "kernel swiglu",
        [&](cudaStream_t stream) { return launch_swiglu(stream, gate_up, h); });
}

void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up) {
  if (is_empty(dh)) return;
  queue(state, "kernel swiglu_backward",
        [&](cudaStream_t stream) { return launch_swiglu_backward(stream, gate_up, dh, dgate_up); });
}

void dropout(ContextState& state, const Dropout& args, AnyMatrix x) {
  if (is_empty(x)) return;
  queue(state, "kernel dropout",
        [&](cudaStream_t stream) { return launch_dropout(stream, args, x); });
}

void zero(ContextState& state, AnyMatrix x) {
  state.runtime->fill(x.data, 0,
                      static_cast<std::size_t>(x.rows * x.cols) * dtype_size_bytes(x.dtype));
}

void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y) {
  if (is_empty(y)) return;
  queue(state, "kernel add", [&](cudaStream_t stream) { return launch_add(stream, x, y); });
}

void queue_cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                         bool gradient, double* loss) {
  if (is_empty(logits)) return state.runtime->fill(loss, 0, sizeof *loss);
  core::Workspace::Frame frame(state.workspace);
  auto* const losses = frame.take<double>(logits.rows);
  queue(state, "kernel cross_entropy", [&](cudaStream_t stream) {
    return launch_cross_entropy(stream, logits, targets.data(), count, gradient, losses, loss);
  });
}

void sgd(ContextState& state, const SgdRates& rates, std::span<const Update> updates) {
  queue(state, "kernel sgd",
        [&](cudaStream_t stream) { return launch_sgd(stream, rates, updates); });
}

void adamw(ContextState& state, const AdamRates& rates, std::span<const Update> updates) {
  queue(state, "kernel adamw",
        [&](cudaStream_t stream) { return launch_adamw(stream, rates, updates); });
}

}  // namespace

const Engine* engine() noexcept {
  static constexpr Engine backend = {
      .embed = embed,
      .embed_backward = embed_backward,
      .rms_norm = rms_norm,
      .rms_norm_backward = rms_norm_backward,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .rope = rope,
      .attention = attention,
      .attention_backward = attention_backward,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .dropout = dropout,
      .zero = zero,
      .add = add,
      .queue_cross_entropy = queue_cross_entropy,
      .sgd = sgd,
      .adamw = adamw,
  };
  return &backend;
}

}  // namespace switchback::models::cuda
