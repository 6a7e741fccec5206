// SPDX-License-Identifier: Apache-2.0
// Models: the operations of a model besides its linear layers: forward and backward, on f32 or bf16
// activations, with parameters and their gradients in f32. Arguments are checked by the blocks that
// call these; matrices are contiguous (stride = cols). All of them, tokens too, lie in the memory
// of the Context's device.
//
// On a CPU they run on the Context's threads, and on another device they are queued on its stream.
// Results do not depend on the number of threads or on the order in which blocks of a device run:
// what is summed over rows is summed over fixed blocks of rows, and then over the blocks in order.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"
#include "models/profile.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models {

using Tokens = std::span<const std::int32_t>;

/// y[r] = table[tokens[r]] (+ positions[r mod length]).
void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y);
/// dtable[tokens[r]] += dy[r], dpositions[r mod length] += dy[r]; unless `accumulate`, both are
/// zeroed first.
void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate);

/// RMSNorm (Zhang and Sennrich 2019): y = s · rstd · gain, s = x (+ add), rstd[r] = 1/sqrt(mean(s²)
/// + 1e-5). Writes s to `sum` if `add` is given.
struct RmsNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {};
  AnyMatrix y = {};
  std::span<float> rstd = {};
};
void rms_norm(ContextState& state, const RmsNorm& args);
/// dx += the gradient of s; dgain (+)= the gradient of the gain.
struct RmsNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {};
  bool accumulate = false;  ///< add to dgain
};
void rms_norm_backward(ContextState& state, const RmsNormBackward& args);

/// LayerNorm (Ba et al. 2016): y = (s - mean) · rstd · gain + bias, s = x (+ add), with the biased
/// variance + 1e-5. Writes s to `sum` if `add` is given.
struct LayerNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {}, bias = {};
  AnyMatrix y = {};
  std::span<float> mean = {}, rstd = {};
};
void layer_norm(ContextState& state, const LayerNorm& args);
/// dx = the gradient of s.
struct LayerNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, mean = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {}, dbias = {};
  bool accumulate = false;  ///< add to dgain and dbias
};
void layer_norm_backward(ContextState& state, const LayerNormBackward& args);

/// Rotary positions (Su et al. 2021), in place, of the queries and keys in qkv[B·T, 3·H·D]: element
/// i < D/2 of a head and element i + D/2 are rotated by the angle t · theta^(-2i/D).
struct Rope {
  std::int64_t heads = 0, head_dim = 0, length = 0;
  std::span<const float> cosines = {}, sines = {};  ///< [length, D/2]
};
/// `inverse` rotates back: the gradient.
void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse);

struct AttentionShape {
  std::int64_t batch = 0, length = 0, heads = 0, head_dim = 0;
  [[nodiscard]] std::int64_t rows() const { return batch * length; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
};
/// Causal attention with scale 1/sqrt(D): out[B·T, H·D] from qkv[B·T, 3·H·D]. Keys are taken in
/// tiles with an online softmax, so that memory is linear in T. logsumexp[B·H·T] is for backward.
/// `times` is filled on CPUs alone.
void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* times = nullptr);
void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* times = nullptr);

/// h[M,F] = silu(a) · b of gate_up[M, 2F] = [a, b] (Shazeer 2020).
void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h);
void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up);

/// Zeroes each element with probability p, and multiplies the others by 1/(1 - p), in place. The
/// choice is a function of the key, the stream, and the element's number from `first` on, so that
/// backward calls the same on the gradient, and no mask is kept.
struct Dropout {
  float p = 0;
  std::uint64_t key = 0;
  std::uint64_t stream = 0;
  std::int64_t first = 0;  ///< a multiple of 64
};
void dropout(ContextState& state, const Dropout& args, AnyMatrix x);

/// All elements 0.
void zero(ContextState& state, AnyMatrix x);
/// y += x.
void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y);

/// Cross entropy of logits[M,V]: the sum over rows of -log softmax(logits)[target], divided by
/// `count`, becomes *loss, which lies in the device's memory. With `gradient`, logits become their
/// gradient.
void queue_cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                         bool gradient, double* loss);
/// The same, and waits for the loss.
double cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                     bool gradient);

/// A slice of parameters with their gradient and the optimizer's moments, all of one length. `copy`
/// is the bf16 copy that products read; null if there is none.
struct Update {
  float* value = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;   ///< SGD: velocity
  float* second = nullptr;  ///< AdamW
  bfloat16* copy = nullptr;
  std::int64_t size = 0;
  float weight_decay = 0;
};
struct SgdRates {
  float learning_rate = 0, momentum = 0;
  bool nesterov = false;
  bool first_step = false;  ///< velocity = gradient
};
struct AdamRates {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  float correction1 = 1, correction2 = 1;  ///< 1/(1 - beta^step)
};
/// v = momentum·v + (g + decay·w), w -= rate·v; Nesterov: w -= rate·(g + decay·w + momentum·v).
void sgd(ContextState& state, const SgdRates& rates, std::span<const Update> updates);
/// AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW computes it.
void adamw(ContextState& state, const AdamRates& rates, std::span<const Update> updates);

}  // namespace switchback::models
