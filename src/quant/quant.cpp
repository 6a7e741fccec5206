// SPDX-License-Identifier: Apache-2.0
#include "switchback/quant.hpp"

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/dispatch.hpp"
#include "quant/problem.hpp"

namespace switchback {

namespace {

using core::check_float;
using core::check_matrix;
using core::check_operands;
using core::check_shape;
using core::check_span;
using core::operand;
using quant::Op;
using quant::op_name;
using quant::Operands;
using quant::run;

void check_input(Op op, std::string_view argument, ConstAnyMatrix x) {
  check_matrix(op_name(op), argument, x);
  check_float(op_name(op), argument, x.dtype);
}

void check_codes(Op op, std::string_view argument, ConstAnyMatrix q, std::int64_t rows,
                 std::string_view rows_name, std::int64_t cols, std::string_view cols_name) {
  check_matrix(op_name(op), argument, q);
  check_shape(op_name(op), argument, q, rows, rows_name, cols, cols_name);
}

}  // namespace

void quantize_rowwise(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
                      std::span<float> absmax) {
  constexpr Op op = Op::rowwise;
  check_input(op, "x", x);
  check_codes(op, "q", q, x.rows, "M", x.cols, "K");
  check_span(op_name(op), "absmax", absmax, x.rows, "M");
  check_operands(context.state(), op_name(op), {operand("q", q), operand("absmax", absmax)},
                 {operand("x", x)});
  Operands o;
  o.x = x;
  o.q = q;
  o.absmax = absmax.data();
  run(context, op, o);
}

void quantize_rowwise_column_sums(Context& context, ConstAnyMatrix g, MatrixView<std::int8_t> q,
                                  std::span<float> absmax, std::span<float> column_sums,
                                  bool accumulate) {
  constexpr Op op = Op::rowwise_column_sums;
  check_input(op, "g", g);
  check_codes(op, "q", q, g.rows, "M", g.cols, "N");
  check_span(op_name(op), "absmax", absmax, g.rows, "M");
  check_span(op_name(op), "column_sums", column_sums, g.cols, "N");
  check_operands(context.state(), op_name(op),
                 {operand("q", q), operand("absmax", absmax), operand("column_sums", column_sums)},
                 {operand("g", g)});
  Operands o;
  o.x = g;
  o.q = q;
  o.absmax = absmax.data();
  o.column_sums = column_sums.data();
  o.accumulate = accumulate;
  run(context, op, o);
}

void column_sums(Context& context, ConstAnyMatrix g, std::span<float> sums, bool accumulate) {
  constexpr Op op = Op::column_sums;
  check_input(op, "g", g);
  check_span(op_name(op), "sums", sums, g.cols, "N");
  check_operands(context.state(), op_name(op), {operand("sums", sums)}, {operand("g", g)});
  Operands o;
  o.x = g;
  o.column_sums = sums.data();
  o.accumulate = accumulate;
  run(context, op, o);
}

void quantize_columnwise_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q_t,
                                   std::span<float> absmax) {
  constexpr Op op = Op::columnwise_transpose;
  check_input(op, "w", w);
  check_codes(op, "q_t", q_t, w.cols, "K", w.rows, "N");
  check_span(op_name(op), "absmax", absmax, w.cols, "K");
  check_operands(context.state(), op_name(op), {operand("q_t", q_t), operand("absmax", absmax)},
                 {operand("w", w)});
  Operands o;
  o.x = w;
  o.q_t = q_t;
  o.absmax_cols = absmax.data();
  run(context, op, o);
}

void quantize_global(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                     std::span<float> absmax) {
  constexpr Op op = Op::global;
  check_input(op, "w", w);
  check_codes(op, "q", q, w.rows, "N", w.cols, "K");
  check_span(op_name(op), "absmax", absmax, 1, "one scale");
  check_operands(context.state(), op_name(op), {operand("q", q), operand("absmax", absmax)},
                 {operand("w", w)});
  Operands o;
  o.x = w;
  o.q = q;
  o.absmax = absmax.data();
  run(context, op, o);
}

void quantize_global_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q_t,
                               std::span<float> absmax) {
  constexpr Op op = Op::global_transpose;
  check_input(op, "w", w);
  check_codes(op, "q_t", q_t, w.cols, "K", w.rows, "N");
  check_span(op_name(op), "absmax", absmax, 1, "one scale");
  check_operands(context.state(), op_name(op), {operand("q_t", q_t), operand("absmax", absmax)},
                 {operand("w", w)});
  Operands o;
  o.x = w;
  o.q_t = q_t;
  o.absmax = absmax.data();
  run(context, op, o);
}

void quantize_rowwise_and_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                               MatrixView<std::int8_t> q,
                                               std::span<float> absmax_rows,
                                               MatrixView<std::int8_t> q_t,
                                               std::span<float> absmax_cols) {
  constexpr Op op = Op::rowwise_and_columnwise_transpose;
  check_input(op, "w", w);
  check_codes(op, "q", q, w.rows, "N", w.cols, "K");
  check_span(op_name(op), "absmax_rows", absmax_rows, w.rows, "N");
  check_codes(op, "q_t", q_t, w.cols, "K", w.rows, "N");
  check_span(op_name(op), "absmax_cols", absmax_cols, w.cols, "K");
  check_operands(context.state(), op_name(op),
                 {operand("q", q), operand("absmax_rows", absmax_rows), operand("q_t", q_t),
                  operand("absmax_cols", absmax_cols)},
                 {operand("w", w)});
  Operands o;
  o.x = w;
  o.q = q;
  o.q_t = q_t;
  o.absmax = absmax_rows.data();
  o.absmax_cols = absmax_cols.data();
  run(context, op, o);
}

void quantize_global_and_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                                   MatrixView<std::int8_t> q_t, std::span<float> absmax) {
  constexpr Op op = Op::global_and_transpose;
  check_input(op, "w", w);
  check_codes(op, "q", q, w.rows, "N", w.cols, "K");
  check_codes(op, "q_t", q_t, w.cols, "K", w.rows, "N");
  check_span(op_name(op), "absmax", absmax, 1, "one scale");
  check_operands(context.state(), op_name(op),
                 {operand("q", q), operand("q_t", q_t), operand("absmax", absmax)},
                 {operand("w", w)});
  Operands o;
  o.x = w;
  o.q = q;
  o.q_t = q_t;
  o.absmax = absmax.data();
  run(context, op, o);
}

void dequantize_rowwise(Context& context, MatrixView<const std::int8_t> q,
                        std::span<const float> absmax, AnyMatrix x) {
  constexpr Op op = Op::dequantize_rowwise;
  check_matrix(op_name(op), "q", q);
  check_span(op_name(op), "absmax", absmax, q.rows, "M");
  check_input(op, "x", x);
  check_shape(op_name(op), "x", x, q.rows, "M", q.cols, "K");
  check_operands(context.state(), op_name(op), {operand("x", x)},
                 {operand("q", q), operand("absmax", absmax)});
  Operands o;
  o.codes = q;
  o.scales = absmax.data();
  o.y = x;
  run(context, op, o);
}

void cast_to_int8(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q) {
  constexpr Op op = Op::cast_to_int8;
  check_input(op, "x", x);
  check_codes(op, "q", q, x.rows, "M", x.cols, "K");
  check_operands(context.state(), op_name(op), {operand("q", q)}, {operand("x", x)});
  Operands o;
  o.x = x;
  o.q = q;
  run(context, op, o);
}

std::vector<EngineInfo> quantize_engines(const Context& context) {
  if (!context.state().on_cpu()) return {{"cuda", true, ""}};
  const std::string refusal = quant::cpu::refusal(context.state().features);
  return {{"highway", refusal.empty(), refusal}, {"reference", true, ""}};
}

}  // namespace switchback
