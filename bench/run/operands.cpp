// SPDX-License-Identifier: Apache-2.0
#include "bench/run/operands.hpp"

#include <algorithm>
#include <cmath>

namespace switchback::bench {

OperandNeeds operand_needs(const FieldSet& fields) noexcept {
  const auto any = [&](std::initializer_list<Field> list) {
    return std::any_of(list.begin(), list.end(), [&](Field f) { return fields[index(f)]; });
  };
  using enum Field;
  OperandNeeds need{};
  need.standard = any({standard_fwd, standard_gw, standard_gx, standard_fwd_packed});
  need.int8 = any({rowwise_fwd, rowwise_bwd, global_fwd, global_bwd, fwd_packed, bwd_packed});
  need.qx = any({x_quantize_rowwise, rowwise_fwd, global_fwd, fwd_packed});
  need.qg = any({g_quantize_rowwise, rowwise_bwd, global_bwd, bwd_packed});
  need.qw_row = any({w_quantize_rowwise, rowwise_fwd, fwd_packed});
  need.qw_column_t = any({w_quantize_colwise_transpose, rowwise_bwd, bwd_packed});
  need.qw_global = any({w_quantize_global, global_fwd});
  need.qw_global_t = any({w_quantize_global_transpose, global_bwd});
  need.packed_fwd = any({fwd_packed});
  need.packed_bwd = any({bwd_packed});
  need.cast_x = any({cast_x});
  need.cast_g = any({cast_g});
  need.cast_w = any({cast_w});
  need.x = need.qx || need.cast_x || any({standard_fwd, standard_gw, standard_fwd_packed});
  need.g = need.qg || need.cast_g || any({standard_gx, standard_gw});
  need.w = need.qw_row || need.qw_column_t || need.qw_global || need.qw_global_t || need.cast_w ||
           any({standard_fwd, standard_gx, standard_fwd_packed});
  need.y = any({standard_fwd, rowwise_fwd, global_fwd, fwd_packed, standard_fwd_packed});
  need.dx = any({standard_gx, rowwise_bwd, global_bwd, bwd_packed});
  need.dw = any({standard_gw});
  return need;
}

double operand_bytes(const Case& c, DType dtype, const FieldSet& fields) noexcept {
  const OperandNeeds need = operand_needs(fields);
  const auto m = static_cast<double>(c.batch_size);
  const auto n = static_cast<double>(c.dim_out);
  const auto k = static_cast<double>(c.dim_in);
  const auto element = static_cast<double>(dtype_size_bytes(dtype));
  double bytes = 0;
  const auto add = [&](bool needed, double rows, double cols, double size) {
    if (needed) bytes += rows * cols * size;
  };
  add(need.x, m, k, element);
  add(need.w, n, k, element);
  add(need.g, m, n, element);
  add(need.y, m, n, element);
  add(need.dx, m, k, element);
  add(need.dw, n, k, element);
  add(need.qx, m, k, 1);
  add(need.qg, m, n, 1);
  for (const bool needed : {need.qw_row, need.qw_global, need.qw_column_t, need.qw_global_t})
    add(needed, n, k, 1);
  bytes +=
      std::max({need.cast_x ? m * k : 0.0, need.cast_g ? m * n : 0.0, need.cast_w ? n * k : 0.0});
  bytes += 4 * (2 * m + n + k);
  // Packed weights are padded to a tile and have one correction per column.
  for (const bool needed : {need.packed_fwd, need.packed_bwd})
    add(needed, n + 64, k + 64, 1);
  // The workspace holds one operation's scratch at a time: for an int8 product the packed W and,
  // in an engine without a fused epilogue, the int32 sums; for a floating point one its operands
  // rearranged in f32.
  double scratch = 0;
  if (need.int8) scratch = (n + 64) * (k + 64) + 4 * m * std::max(n, k) + m * std::max(n, k);
  if (need.standard) scratch = std::max(scratch, 4 * (m * k + n * k + m * n));
  return bytes + scratch;
}

Operands make_operands(Context& context, const Case& c, DType dtype, const FieldSet& fields,
                       std::uint64_t seed) {
  const OperandNeeds need = operand_needs(fields);
  const std::int64_t m = c.batch_size, n = c.dim_out, k = c.dim_in;
  Operands o;
  const auto make = [&context](bool needed, ContextMatrix& matrix, DType type, std::int64_t rows,
                               std::int64_t cols) {
    if (needed) matrix = ContextMatrix(context, type, rows, cols);
  };
  make(need.x, o.x, dtype, m, k);
  make(need.w, o.w, dtype, n, k);
  make(need.g, o.g, dtype, m, n);
  make(need.y, o.y, dtype, m, n);
  make(need.dx, o.dx, dtype, m, k);
  make(need.dw, o.dw, dtype, n, k);
  make(need.qx, o.qx, DType::s8, m, k);
  make(need.qg, o.qg, DType::s8, m, n);
  make(need.qw_row, o.qw_row, DType::s8, n, k);
  make(need.qw_global, o.qw_global, DType::s8, n, k);
  make(need.qw_column_t, o.qw_column_t, DType::s8, k, n);
  make(need.qw_global_t, o.qw_global_t, DType::s8, k, n);
  const std::int64_t cast_elements =
      std::max({need.cast_x ? m * k : 0, need.cast_g ? m * n : 0, need.cast_w ? n * k : 0});
  make(cast_elements > 0, o.cast, DType::s8, 1, cast_elements);
  make(true, o.absmax_x, DType::f32, 1, m);
  make(true, o.absmax_g, DType::f32, 1, m);
  make(true, o.absmax_w_row, DType::f32, 1, n);
  make(true, o.absmax_w_column, DType::f32, 1, k);
  make(true, o.absmax_w_global, DType::f32, 1, 1);
  make(true, o.absmax_w_global_t, DType::f32, 1, 1);
  // Weights of a layer have the magnitude 1/√K, so that Y has the magnitude of X.
  if (need.x) fill_normal_anywhere(context, o.x.any(), seed);
  if (need.w)
    fill_normal_anywhere(context, o.w.any(), seed + 1, 1.0f / std::sqrt(static_cast<float>(k)));
  if (need.g) fill_normal_anywhere(context, o.g.any(), seed + 2);
  return o;
}

}  // namespace switchback::bench
