// SPDX-License-Identifier: Apache-2.0
#include "switchback/activation.hpp"

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "quant/dispatch.hpp"
#include "quant/problem.hpp"

namespace switchback {

namespace {

using core::operand;
using quant::Op;
using quant::op_name;
using quant::Operands;

void check_activation(Op op, Activation activation) {
  core::require(activation == Activation::gelu_tanh || activation == Activation::gelu_erf,
                "{}: activation = {}; it must be gelu_tanh (1) or gelu_erf (2)", op_name(op),
                static_cast<std::int32_t>(activation));
}

void check_x(Op op, ConstAnyMatrix x) {
  core::check_matrix(op_name(op), "x", x);
  core::check_float(op_name(op), "x", x.dtype);
}

// A matrix in x's shape.
void check_like_x(Op op, std::string_view argument, ConstAnyMatrix m, ConstAnyMatrix x,
                  std::string_view cols_name) {
  core::check_matrix(op_name(op), argument, m);
  core::check_shape(op_name(op), argument, m, x.rows, "M", x.cols, cols_name);
}

// In the type of x, or f32 if the operation takes that beside it.
void check_type(Op op, std::string_view argument, DType dtype, ConstAnyMatrix x, bool or_f32) {
  const bool right = dtype == x.dtype || (or_f32 && dtype == DType::f32);
  core::require(right, "{}: {} has dtype {}; it must be x's, {}{}", op_name(op), argument,
                dtype_name(dtype), dtype_name(x.dtype), or_f32 ? ", or f32" : "");
}

void check_g_and_dx(Op op, ConstAnyMatrix g, ConstAnyMatrix x, AnyMatrix dx, bool or_f32,
                    std::string_view cols_name) {
  check_like_x(op, "g", g, x, cols_name);
  check_type(op, "g", g.dtype, x, or_f32);
  check_like_x(op, "dx", dx, x, cols_name);
  core::require(dx.dtype == g.dtype, "{}: dx has dtype {}; it must be g's, {}", op_name(op),
                dtype_name(dx.dtype), dtype_name(g.dtype));
}

void check_codes(Op op, MatrixView<std::int8_t> q, std::span<float> absmax, ConstAnyMatrix x,
                 std::string_view cols_name) {
  check_like_x(op, "q", q, x, cols_name);
  core::check_span(op_name(op), "absmax", absmax, x.rows, "M");
}

}  // namespace

void activation_forward(Context& context, ConstAnyMatrix x, Activation activation, AnyMatrix y) {
  constexpr Op op = Op::activation_forward;
  check_activation(op, activation);
  check_x(op, x);
  check_like_x(op, "y", y, x, "K");
  check_type(op, "y", y.dtype, x, false);
  core::check_operands(context.state(), op_name(op), {operand("y", y)}, {operand("x", x)});
  Operands o;
  o.x = x;
  o.activation = activation;
  o.y = y;
  quant::run(context, op, o);
}

void activation_backward(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                         Activation activation, AnyMatrix dx) {
  constexpr Op op = Op::activation_backward;
  check_activation(op, activation);
  check_x(op, x);
  check_g_and_dx(op, g, x, dx, true, "K");
  core::check_operands(context.state(), op_name(op), {operand("dx", dx)},
                       {operand("g", g), operand("x", x)});
  Operands o;
  o.x = x;
  o.g = g;
  o.activation = activation;
  o.y = dx;
  quant::run(context, op, o);
}

void activation_forward_quantize(Context& context, ConstAnyMatrix x, Activation activation,
                                 MatrixView<std::int8_t> q, std::span<float> absmax, AnyMatrix y) {
  constexpr Op op = Op::activation_forward_quantize;
  check_activation(op, activation);
  check_x(op, x);
  check_codes(op, q, absmax, x, "K");
  if (y.data != nullptr) {
    check_like_x(op, "y", y, x, "K");
    check_type(op, "y", y.dtype, x, false);
  } else {
    y = {};
  }
  core::check_operands(context.state(), op_name(op),
                       {operand("q", q), operand("absmax", absmax), operand("y", y)},
                       {operand("x", x)});
  Operands o;
  o.x = x;
  o.activation = activation;
  o.q = q;
  o.absmax = absmax.data();
  o.y = y;
  quant::run(context, op, o);
}

void activation_backward_quantize(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                                  Activation activation, AnyMatrix dx, MatrixView<std::int8_t> q,
                                  std::span<float> absmax, std::span<float> column_sums,
                                  bool accumulate) {
  constexpr Op op = Op::activation_backward_quantize;
  check_activation(op, activation);
  check_x(op, x);
  check_g_and_dx(op, g, x, dx, false, "N");
  check_codes(op, q, absmax, x, "N");
  if (!column_sums.empty()) core::check_span(op_name(op), "column_sums", column_sums, x.cols, "N");
  core::check_operands(context.state(), op_name(op),
                       {operand("dx", dx), operand("q", q), operand("absmax", absmax),
                        operand("column_sums", column_sums)},
                       {operand("g", g), operand("x", x)});
  Operands o;
  o.x = x;
  o.g = g;
  o.activation = activation;
  o.y = dx;
  o.q = q;
  o.absmax = absmax.data();
  o.column_sums = column_sums.empty() ? nullptr : column_sums.data();
  o.accumulate = accumulate;
  quant::run(context, op, o);
}

}  // namespace switchback
