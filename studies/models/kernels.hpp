// SPDX-License-Identifier: Apache-2.0
// Models: the operations of a model other than its linear layers, forward and backward, on f32 or
// bf16 activations, with parameters and their gradients in f32. Callers must check the arguments.
// Matrices are contiguous (stride = cols). All of them, including tokens, are in the memory of the
// Context's device. arguments.hpp describes what the operations with a struct of arguments compute.
//
// On a CPU the operations run on the Context's threads; on another device they are queued on its
// stream. Results do not depend on the number of threads, or on the order in which blocks of a
// device run: sums over rows are sums over fixed blocks of rows, and then over the blocks in order.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"
#include "studies/models/arguments.hpp"
#include "studies/models/profile.hpp"

namespace switchback::models {

/// Embedding: y[r] = table[tokens[r]], plus positions[r mod length] if `positions` is given.
void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y);
/// Backward of embed: dtable[tokens[r]] += dy[r], dpositions[r mod length] += dy[r]. Unless
/// `accumulate`, both are zeroed first. Rows of one token are summed over blocks of 64 rows, rows
/// of one position in order.
void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate);

void rms_norm(ContextState& state, const RmsNorm& args);
void rms_norm_backward(ContextState& state, const RmsNormBackward& args);

void layer_norm(ContextState& state, const LayerNorm& args);
void layer_norm_backward(ContextState& state, const LayerNormBackward& args);

/// Rotary positions of qkv, in place. `inverse` rotates back, which backward applies to the
/// gradient.
void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse);

/// Causal attention with scale 1/sqrt(D): out[B·T, H·D] from qkv[B·T, 3·H·D]. Keys are processed in
/// tiles with an online softmax, so that memory is linear in T. logsumexp[B·H·T] is for backward. A
/// NaN of a key affects only its query and the later ones. On CPUs, a NaN or Inf of a value may
/// also give NaN for up to 31 queries before it, because their weights of zero are factors in the
/// same products. `times` is filled only on CPUs.
void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* times = nullptr);
void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* times = nullptr);

/// SwiGLU (Shazeer 2020): h[M,F] = silu(a) · b, where gate_up[M, 2F] = [a, b].
void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h);
void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up);

void dropout(ContextState& state, const Dropout& args, AnyMatrix x);

/// Sets all elements to 0.
void zero(ContextState& state, AnyMatrix x);
/// y += x.
void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y);

/// Queues the cross entropy of logits[M,V]: the sum over rows of -log softmax(logits)[target],
/// divided by `count`. The result is stored in *loss, in the device's memory. With `gradient`, the
/// logits are replaced by their gradient.
void queue_cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                         bool gradient, double* loss);
/// Cross entropy like queue_cross_entropy, but waits for the loss and returns it.
double cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                     bool gradient);

/// SGD: v = momentum·v + (g + decay·w), w -= rate·v; Nesterov: w -= rate·(g + decay·w +
/// momentum·v).
void sgd(ContextState& state, const SgdRates& rates, std::span<const Update> updates);
/// AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW computes it.
void adamw(ContextState& state, const AdamRates& rates, std::span<const Update> updates);

}  // namespace switchback::models
