// SPDX-License-Identifier: Apache-2.0
#include "bench/run/operands.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "measure/data.hpp"

namespace switchback::bench {

namespace {

/// The length of a matrix's side: the rows of the batch, the layer's outputs, its inputs, or 1.
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

// Lists the operands that a field's work itself reads and writes, in any order.
struct Touches {
  std::vector<Operand> operator()(const FloatingProduct& p) const { return {p.a, p.b, p.d}; }
  std::vector<Operand> operator()(const EvalForward& f) const {
    return {f.product.a, f.product.d};  // the layer itself holds W
  }
  std::vector<Operand> operator()(const Int8Product& p) const {
    std::vector<Operand> all = {p.a, p.absmax_a, p.absmax_b, p.d};
    if (p.packed == nullptr) all.push_back(p.b);
    return all;
  }
  std::vector<Operand> operator()(const Quantize& q) const { return {q.x, q.q, q.absmax}; }
  std::vector<Operand> operator()(const Cast& cast) const { return {cast.x, &Operands::cast}; }
};

/// Whether a field's work uses an operand.
struct Uses {
  Operand operand;

  bool operator()(const FloatingProduct& p) const noexcept {
    return operand == p.a || operand == p.b || operand == p.d;
  }
  bool operator()(const EvalForward& f) const noexcept { return (*this)(f.product); }
  bool operator()(const Quantize& q) const noexcept { return operand == q.x || operand == q.q; }
  bool operator()(const Cast& cast) const noexcept { return operand == cast.x; }
  // An int8 product also uses the matrices that its codes are made from.
  bool operator()(const Int8Product& p) const noexcept {
    if (operand == p.a || operand == p.b || operand == p.d) return true;
    const auto specs = field_table();
    return std::any_of(specs.begin(), specs.end(), [&](const FieldSpec& spec) {
      const auto* made = std::get_if<Quantize>(&spec.work);
      return made != nullptr && (made->q == p.a || made->q == p.b) && operand == made->x;
    });
  }
};

/// Calls f(work) for each chosen field whose work is of type Work.
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

std::vector<Operand> operands_of(Field field) {
  return std::visit(Touches{}, spec_of(field).work);
}

double bytes_of(Operand operand, const Case& c, DType dtype, const FieldSet& fields) noexcept {
  if (operand == &Operands::cast) return most_cast_elements(c, fields);
  for (const OperandSpec& spec : operand_table)
    if (spec.operand == operand)
      return elements_of(operand, c) * (spec.type == Type::codes ? 1
                                        : spec.type == Type::scales
                                            ? 4
                                            : static_cast<double>(dtype_size_bytes(dtype)));
  return 0;
}

double copied_bytes(const Case& c, DType dtype, const FieldSet& fields, double cold_bytes) {
  if (!(cold_bytes > 0)) return 0;
  // Counts the uses of each operand in a round like measure::Turns. Packed weights and layers'
  // weights are used once in a round.
  std::vector<std::pair<Operand, std::int64_t>> uses;
  const double weight_bytes = static_cast<double>(c.dim_in) * static_cast<double>(c.dim_out);
  std::vector<double> once;
  for (std::size_t i = 0; i < all_fields; ++i) {
    if (!fields[i]) continue;
    const auto field = static_cast<Field>(i);
    for (const Operand operand : operands_of(field)) {
      const auto known =
          std::find_if(uses.begin(), uses.end(), [&](const auto& u) { return u.first == operand; });
      if (known != uses.end())
        ++known->second;
      else
        uses.emplace_back(operand, 1);
    }
    const auto* product = std::get_if<Int8Product>(&spec_of(field).work);
    if (product != nullptr && product->packed != nullptr) once.push_back(weight_bytes);
    if (std::holds_alternative<EvalForward>(spec_of(field).work))
      once.push_back(weight_bytes * static_cast<double>(dtype_size_bytes(dtype)));
  }
  double round_bytes = 0, total = 0;
  for (const auto& [operand, count] : uses)
    round_bytes += bytes_of(operand, c, dtype, fields) * static_cast<double>(count);
  for (const double bytes : once)
    round_bytes += bytes;
  const auto add = [&](double bytes, std::int64_t count) {
    const std::size_t copies = measure::Turns::copies_of(bytes, count, round_bytes, cold_bytes);
    total += bytes * static_cast<double>(copies - 1);
  };
  for (const auto& [operand, count] : uses)
    add(bytes_of(operand, c, dtype, fields), count);
  for (const double bytes : once)
    add(bytes, 1);
  return total;
}

OperandTurns::OperandTurns(Context& context, Operands& operands, measure::Turns& turns)
    : operands_(operands), turns_(turns), more_(operand_table.size() + 1) {
  for (std::size_t i = 0; i <= operand_table.size(); ++i) {
    const Operand operand = i < operand_table.size() ? operand_table[i].operand : &Operands::cast;
    places_.push_back(turns.add(static_cast<double>((operands.*operand).size_bytes()),
                                [this, i, operand, &context] {
                                  more_[i].push_back(measure::copy_of(context, operands_.*operand));
                                }));
  }
}

std::size_t OperandTurns::index_of(Operand operand) noexcept {
  const auto found = std::find_if(operand_table.begin(), operand_table.end(),
                                  [&](const OperandSpec& s) { return s.operand == operand; });
  // Operands::cast is not in the table; it has the index after the last entry.
  return static_cast<std::size_t>(found - operand_table.begin());
}

const measure::Matrix& OperandTurns::take(Operand operand) {
  if (!turns_.cold()) return operands_.*operand;
  turns_.next(places_[index_of(operand)]);
  return last(operand);
}

const measure::Matrix& OperandTurns::last(Operand operand) const {
  const std::size_t i = index_of(operand);
  const std::size_t copy = turns_.current(places_[i]);
  return copy == 0 ? operands_.*operand : more_[i][copy - 1];
}

void OperandTurns::add(PackedWeight Operands::*packed, double bytes,
                       std::function<void(PackedWeight&)> pack_again) {
  PackedCopies& copies = packed_.emplace_back();
  copies.packed = packed;
  copies.place = turns_.add(bytes, [&copies, pack_again = std::move(pack_again)] {
    pack_again(copies.more.emplace_back());
  });
}

PackedWeight& OperandTurns::take(PackedWeight Operands::*packed) {
  for (PackedCopies& copies : packed_)
    if (copies.packed == packed)
      if (const std::size_t copy = turns_.next(copies.place); copy > 0)
        return copies.more[copy - 1];
  return operands_.*packed;
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
  // The workspace holds the scratch memory of one operation at a time. For an int8 product that is
  // the packed W and, in an engine without a fused epilogue, the int32 sums. For a floating point
  // product it is the operands rearranged in f32.
  double scratch = 0;
  for_each_of<Int8Product>(fields, [&](const Int8Product& p) {
    // A packed weight is padded to a tile, and has a correction for each column.
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
  // W has elements of magnitude 1/√K, like a layer's weights, so that Y has the magnitude of X.
  const float w_scale = 1.0f / std::sqrt(static_cast<float>(c.dim_in));
  if (!o.x.empty()) measure::fill_normal(context, o.x.any(), seed);
  if (!o.w.empty()) measure::fill_normal(context, o.w.any(), seed + 1, w_scale);
  if (!o.g.empty()) measure::fill_normal(context, o.g.any(), seed + 2);
  return o;
}

}  // namespace switchback::bench
