// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: functions that launch the CUDA kernels and return without waiting. Matrices
// are contiguous, aligned to their elements, and not empty.
#pragma once

#include <cstdint>
#include <span>

#include "core/cuda/api.hpp"
#include "studies/models/arguments.hpp"

namespace switchback::models::cuda {

cudaError_t launch_embed(cudaStream_t stream, const std::int32_t* tokens, ConstAnyMatrix table,
                         ConstAnyMatrix positions, AnyMatrix y);
/// Launches the backward of the embedding. A dtable or dpositions without rows is skipped.
cudaError_t launch_embed_backward(cudaStream_t stream, const std::int32_t* tokens,
                                  ConstAnyMatrix dy, MatrixView<float> dtable,
                                  MatrixView<float> dpositions, bool accumulate);

/// Gradients of a norm's parameters are summed over blocks of this number of rows, then over the
/// blocks.
inline constexpr std::int64_t norm_block_rows = 64;
cudaError_t launch_rms_norm(cudaStream_t stream, const RmsNorm& args);
/// `sums`: scratch memory with a row of floats for each block of rows.
cudaError_t launch_rms_norm_backward(cudaStream_t stream, const RmsNormBackward& args, float* sums);
cudaError_t launch_layer_norm(cudaStream_t stream, const LayerNorm& args);
/// `sums`: scratch memory with two rows of floats for each block of rows.
cudaError_t launch_layer_norm_backward(cudaStream_t stream, const LayerNormBackward& args,
                                       float* sums);

cudaError_t launch_rope(cudaStream_t stream, const Rope& args, AnyMatrix qkv, bool inverse);

cudaError_t launch_attention(cudaStream_t stream, const AttentionShape& shape, ConstAnyMatrix qkv,
                             AnyMatrix out, float* logsumexp);
/// `dots`: scratch memory of the size of logsumexp.
cudaError_t launch_attention_backward(cudaStream_t stream, const AttentionShape& shape,
                                      ConstAnyMatrix qkv, ConstAnyMatrix out,
                                      const float* logsumexp, ConstAnyMatrix dout, float* dots,
                                      AnyMatrix dqkv);

cudaError_t launch_swiglu(cudaStream_t stream, ConstAnyMatrix gate_up, AnyMatrix h);
cudaError_t launch_swiglu_backward(cudaStream_t stream, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                                   AnyMatrix dgate_up);
cudaError_t launch_dropout(cudaStream_t stream, const Dropout& args, AnyMatrix x);
cudaError_t launch_add(cudaStream_t stream, ConstAnyMatrix x, AnyMatrix y);

/// `losses`: scratch memory with one element for each row.
cudaError_t launch_cross_entropy(cudaStream_t stream, AnyMatrix logits, const std::int32_t* targets,
                                 std::int64_t count, bool gradient, double* losses, double* loss);

cudaError_t launch_sgd(cudaStream_t stream, const SgdRates& rates, std::span<const Update> updates);
cudaError_t launch_adamw(cudaStream_t stream, const AdamRates& rates,
                         std::span<const Update> updates);

}  // namespace switchback::models::cuda
