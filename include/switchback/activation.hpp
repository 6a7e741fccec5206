// SPDX-License-Identifier: Apache-2.0
// Entry zone: GELU and its derivative, alone and with the int8 quantization of their result: what
// stands between the two layers of an MLP.
//
// Values and derivatives are computed in f32 from the widened element, in one fixed sequence of
// operations, and rounded once to the type of the output, so results are the same on every device,
// instruction set and thread count. They differ from the exact functions by at most
// 2^-22 · max(1, |x|) before that rounding. NaN gives NaN, Inf gives Inf, and what has no limit
// that would show it (the value at -Inf, the derivative at ±Inf) is NaN: non-finite never turns
// finite.
//
// The operations that quantize give, bit for bit, what the one without and then quantize_rowwise
// give, in one pass: the codes are those of the rounded result.
//
// Inputs and outputs must not overlap. activation is gelu_tanh or gelu_erf.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"
#include "switchback/types.hpp"

namespace switchback {

/// y[M,K] = activation(x[M,K]), in the type of x.
SWITCHBACK_API void activation_forward(Context& context, ConstAnyMatrix x, Activation activation,
                                       AnyMatrix y);

/// dx[M,K] = g[M,K] · activation'(x[M,K]): the gradient of x from that of activation(x). g and dx
/// have one type, that of x or f32.
SWITCHBACK_API void activation_backward(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                                        Activation activation, AnyMatrix dx);

/// q[M,K], absmax[M] of activation(x[M,K]), one scale per row; activation(x) itself too unless the
/// data of y is null.
SWITCHBACK_API void activation_forward_quantize(Context& context, ConstAnyMatrix x,
                                                Activation activation, MatrixView<std::int8_t> q,
                                                std::span<float> absmax, AnyMatrix y = {});

/// dx[M,N] = g[M,N] · activation'(x[M,N]), its codes q[M,N] and absmax[M], one scale per row, and
/// unless column_sums is empty its column sums [N] (the bias gradient of the layer that made x),
/// summed as quantize_rowwise_column_sums does. g, x and dx have one type.
SWITCHBACK_API void activation_backward_quantize(Context& context, ConstAnyMatrix g,
                                                 ConstAnyMatrix x, Activation activation,
                                                 AnyMatrix dx, MatrixView<std::int8_t> q,
                                                 std::span<float> absmax,
                                                 std::span<float> column_sums = {},
                                                 bool accumulate = false);

}  // namespace switchback
