// SPDX-License-Identifier: Apache-2.0
#include "studies/models/kernels.hpp"

#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/engine.hpp"

namespace switchback::models {

core::DeviceTable<const Engine*>& engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const Engine*>>(&cpu::engine, cuda::engine());
  return table;
}

namespace {

const Engine& engine_of(const ContextState& state) {
  const Engine* const engine = engines().of(state.device.kind);
  if (engine == nullptr)
    core::fail(Status::unsupported, "models: this build has no operations for device {}",
               state.device);
  return *engine;
}

}  // namespace

void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y) {
  engine_of(state).embed(state, tokens, table, positions, y);
}

void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate) {
  engine_of(state).embed_backward(state, tokens, dy, dtable, dpositions, accumulate);
}

void rms_norm(ContextState& state, const RmsNorm& args) {
  engine_of(state).rms_norm(state, args);
}

void rms_norm_backward(ContextState& state, const RmsNormBackward& args) {
  engine_of(state).rms_norm_backward(state, args);
}

void layer_norm(ContextState& state, const LayerNorm& args) {
  engine_of(state).layer_norm(state, args);
}

void layer_norm_backward(ContextState& state, const LayerNormBackward& args) {
  engine_of(state).layer_norm_backward(state, args);
}

void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse) {
  engine_of(state).rope(state, args, qkv, inverse);
}

void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* times) {
  engine_of(state).attention(state, shape, qkv, out, logsumexp, times);
}

void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* times) {
  engine_of(state).attention_backward(state, shape, qkv, out, logsumexp, dout, dqkv, times);
}

void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h) {
  engine_of(state).swiglu(state, gate_up, h);
}

void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up) {
  engine_of(state).swiglu_backward(state, gate_up, dh, dgate_up);
}

void dropout(ContextState& state, const Dropout& args, AnyMatrix x) {
  if (args.p > 0) engine_of(state).dropout(state, args, x);
}

void zero(ContextState& state, AnyMatrix x) {
  engine_of(state).zero(state, x);
}

void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y) {
  engine_of(state).add(state, x, y);
}

void queue_cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                         bool gradient, double* loss) {
  engine_of(state).queue_cross_entropy(state, logits, targets, count, gradient, loss);
}

double cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                     bool gradient) {
  double loss = 0;
  if (state.on_cpu()) {
    queue_cross_entropy(state, logits, targets, count, gradient, &loss);
    return loss;
  }
  core::Workspace::Frame frame(state.workspace);
  auto* const on_device = frame.take<double>(1);
  queue_cross_entropy(state, logits, targets, count, gradient, on_device);
  state.runtime->copy(&loss, sizeof loss, on_device, sizeof loss, sizeof loss, 1);
  state.runtime->synchronize();
  return loss;
}

void sgd(ContextState& state, const SgdRates& rates, std::span<const Update> updates) {
  engine_of(state).sgd(state, rates, updates);
}

void adamw(ContextState& state, const AdamRates& rates, std::span<const Update> updates) {
  engine_of(state).adamw(state, rates, updates);
}

}  // namespace switchback::models
