// SPDX-License-Identifier: Apache-2.0
// Entry zone: GELU and its derivative, alone and fused with the int8 quantization of the result,
// for use between the two layers of an MLP.
//
// Values and derivatives are computed in f32 from the widened element, in one fixed sequence of
// operations, and rounded once to the type of the output. So results are the same on every device,
// instruction set and thread count. Before that rounding they differ from the exact functions by at
// most 2^-22 · max(1, |x|). A non-finite input never gives a finite output: NaN gives NaN, +Inf
// gives Inf, and a finite limit (the value at -Inf, the derivative at ±Inf) becomes NaN.
//
// The operations that also quantize take one pass over memory. They give, bit for bit, the results
// of the operation that does not quantize followed by quantize_rowwise: the codes are those of the
// rounded values.
//
// Inputs and outputs must not overlap. The argument `activation` is gelu_tanh or gelu_erf.
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

/// dx[M,K] = g[M,K] · activation'(x[M,K]): the gradient of x from the gradient of activation(x). g
/// and dx have the same type: that of x, or f32.
SWITCHBACK_API void activation_backward(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                                        Activation activation, AnyMatrix dx);

/// Quantizes activation(x[M,K]) to int8 codes q[M,K] with one scale per row, absmax[M]. Also writes
/// activation(x) to y, unless the data of y is null.
SWITCHBACK_API void activation_forward_quantize(Context& context, ConstAnyMatrix x,
                                                Activation activation, MatrixView<std::int8_t> q,
                                                std::span<float> absmax, AnyMatrix y = {});

/// Computes dx[M,N] = g[M,N] · activation'(x[M,N]), and quantizes it to int8 codes q[M,N] with one
/// scale per row, absmax[M]. Unless column_sums is empty, also computes the column sums [N] of dx
/// (the bias gradient of the layer that produced x) as quantize_rowwise_column_sums does;
/// `accumulate` adds them to the values there. g, x and dx have the same type.
SWITCHBACK_API void activation_backward_quantize(Context& context, ConstAnyMatrix g,
                                                 ConstAnyMatrix x, Activation activation,
                                                 AnyMatrix dx, MatrixView<std::int8_t> q,
                                                 std::span<float> absmax,
                                                 std::span<float> column_sums = {},
                                                 bool accumulate = false);

}  // namespace switchback
