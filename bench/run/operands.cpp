// SPDX-License-Identifier: Apache-2.0
#include "bench/run/operands.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "measure/data.hpp"

namespace switchback::bench {

namespace {

/// A side of a matrix: rows of the batch, the layer's outputs, its inputs, or 1.
enum class Side { m, n, k, one };

std::int64_t size_of(Side side, const Case& c) noexcept {
  switch (side) {
    case Side::m:
      return c.batch_size;
    case Side::n:
      return c.dim_out;
    case Side::k:
      return c.dim_in;
    case Side::one:
      break;
  }
  return 1;
}

enum class Type { input, codes, scales };

struct OperandSpec {
  Operand operand;
  Type type;
  Side rows, cols;
};
constexpr std::array<OperandSpec, 18> operand_table{{
    {&Operands::x, Type::input, Side::m, Side::k},
    {&Operands::w, Type::input, Side::n, Side::k},
    {&Operands::g, Type::input, Side::m, Side::n},
    {&Operands::y, Type::input, Side::m, Side::n},
    {&Operands::dx, Type::input, Side::m, Side::k},
    {&Operands::dw, Type::input, Side::n, Side::k},
    {&Operands::qx, Type::codes, Side::m, Side::k},
    {&Operands::qg, Type::codes, Side::m, Side::n},
    {&Operands::qw_row, Type::codes, Side::n, Side::k},
    {&Operands::qw_global, Type::codes, Side::n, Side::k},
    {&Operands::qw_column_t, Type::codes, Side::k, Side::n},
    {&Operands::qw_global_t, Type::codes, Side::k, Side::n},
    {&Operands::absmax_x, Type::scales, Side::one, Side::m},
    {&Operands::absmax_g, Type::scales, Side::one, Side::m},
    {&Operands::absmax_w_row, Type::scales, Side::one, Side::n},
    {&Operands::absmax_w_column, Type::scales, Side::one, Side::k},
    {&Operands::absmax_w_global, Type::scales, Side::one, Side::one},
    {&Operands::absmax_w_global_t, Type::scales, Side::one, Side::one},
}};

/// Whether a field's work touches an operand.
struct Uses {
  Operand operand;

  bool operator()(const FloatingProduct& p) const noexcept {
    return operand == p.a || operand == p.b || operand == p.d;
  }
  bool operator()(const EvalForward& f) const noexcept { return (*this)(f.product); }
  bool operator()(const Quantize& q) const noexcept { return operand == q.x || operand == q.q; }
  bool operator()(const Cast& cast) const noexcept { return operand == cast.x; }
  // And what its codes are made from.
  bool operator()(const Int8Product& p) const noexcept {
    if (operand == p.a || operand == p.b || operand == p.d) return true;
    const auto specs = field_table();
    return std::any_of(specs.begin(), specs.end(), [&](const FieldSpec& spec) {
      const auto* made = std::get_if<Quantize>(&spec.work);
      return made != nullptr && (made->q == p.a || made->q == p.b) && operand == made->x;
    });
  }
};

/// Calls f(work) for the work of that kind in each chosen field.
template <class Work, class F>
void for_each_of(const FieldSet& fields, const F& f) {
  for (std::size_t i = 0; i < all_fields; ++i)
    if (const auto* work = std::get_if<Work>(&field_table()[i].work); fields[i] && work != nullptr)
      f(*work);
}

double most_cast_elements(const Case& c, const FieldSet& fields) noexcept {
  double most = 0;
  for_each_of<Cast>(fields,
                    [&](const Cast& cast) { most = std::max(most, elements_of(cast.x, c)); });
  return most;
}

}  // namespace

bool uses(const FieldSet& fields, Operand operand) noexcept {
  for (std::size_t i = 0; i < all_fields; ++i)
    if (fields[i] && std::visit(Uses{operand}, field_table()[i].work)) return true;
  return false;
}

double elements_of(Operand operand, const Case& c) noexcept {
  for (const OperandSpec& spec : operand_table)
    if (spec.operand == operand)
      return static_cast<double>(size_of(spec.rows, c)) *
             static_cast<double>(size_of(spec.cols, c));
  return 0;
}

double operand_bytes(const Case& c, DType dtype, const FieldSet& fields) noexcept {
  const auto m = static_cast<double>(c.batch_size);
  const auto n = static_cast<double>(c.dim_out);
  const auto k = static_cast<double>(c.dim_in);
  double bytes = 4 * (2 * m + n + k);  // scales
  for (const OperandSpec& spec : operand_table)
    if (spec.type != Type::scales && uses(fields, spec.operand))
      bytes += elements_of(spec.operand, c) *
               (spec.type == Type::codes ? 1 : static_cast<double>(dtype_size_bytes(dtype)));
  bytes += most_cast_elements(c, fields);
  // The workspace holds one operation's scratch at a time: for an int8 product the packed W and,
  // in an engine without a fused epilogue, the int32 sums; for a floating point one its operands
  // rearranged in f32.
  double scratch = 0;
  for_each_of<Int8Product>(fields, [&](const Int8Product& p) {
    // Packed weights are padded to a tile and carry a correction a column.
    if (p.packed != nullptr) bytes += (n + 64) * (k + 64);
    scratch = (n + 64) * (k + 64) + 4 * m * std::max(n, k) + m * std::max(n, k);
  });
  const double rearranged = 4 * (m * k + n * k + m * n);
  for_each_of<FloatingProduct>(
      fields, [&](const FloatingProduct&) { scratch = std::max(scratch, rearranged); });
  for_each_of<EvalForward>(fields,
                           [&](const EvalForward&) { scratch = std::max(scratch, rearranged); });
  return bytes + scratch;
}

Operands make_operands(Context& context, const Case& c, DType dtype, const FieldSet& fields,
                       std::uint64_t seed) {
  Operands o;
  for (const OperandSpec& spec : operand_table) {
    if (spec.type != Type::scales && !uses(fields, spec.operand)) continue;
    const DType type = spec.type == Type::input   ? dtype
                       : spec.type == Type::codes ? DType::s8
                                                  : DType::f32;
    o.*spec.operand = measure::Matrix(context, type, size_of(spec.rows, c), size_of(spec.cols, c));
  }
  const auto cast_elements = static_cast<std::int64_t>(most_cast_elements(c, fields));
  if (cast_elements > 0) o.cast = measure::Matrix(context, DType::s8, 1, cast_elements);
  // A layer's weights are of the size 1/√K, so that Y is of X's.
  const float w_scale = 1.0f / std::sqrt(static_cast<float>(c.dim_in));
  if (!o.x.empty()) measure::fill_normal(context, o.x.any(), seed);
  if (!o.w.empty()) measure::fill_normal(context, o.w.any(), seed + 1, w_scale);
  if (!o.g.empty()) measure::fill_normal(context, o.g.any(), seed + 2);
  return o;
}

}  // namespace switchback::bench
