// SPDX-License-Identifier: Apache-2.0
// Measure: what an element of a result must be by docs/numerics.md, computed without the library's
// operations, and how far a sum in f32 may be from the exact one. The checks of bench and of the
// tuner look at different elements, but share these rules.
//
// f64 results are rounded to f32 (this is exact for one division, product or sum of two f32
// values). Sums of products are in f64 or int64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

/// How the elements of a matrix share scales.
enum class Group { row, column, matrix };

/// Includes x in the absmax of a group of elements. An absmax begins with 0. NaN wins over Inf.
void grow_absmax(float& absmax, double x) noexcept;
/// The int8 code of x in a group of elements with this absmax.
std::int8_t code_of(double x, float absmax) noexcept;
/// The result of cast_to_int8 for x: truncated, clamped to [-128, 127], NaN to 0.
std::int8_t cast_of(double x) noexcept;

/// Rounds the value once to the dtype (f32, f16 or bf16).
float round_to(DType dtype, double value) noexcept;
/// The largest change by rounding `value` to the dtype. A subnormal result may also have become
/// zero.
double rounding_error(DType dtype, double value) noexcept;

/// Exact sums of some rows of the product a[M,K] · b[N,K]ᵀ of codes: [rows.size(), N].
std::vector<std::int64_t> integer_product(Context& context, MatrixView<const std::int8_t> a,
                                          MatrixView<const std::int8_t> b,
                                          std::span<const std::int64_t> rows);
/// Dequantizes a sum of an int8 product: absmax_b · (absmax_a · (sum · c)) in f32, where c is
/// 1/127².
float dequantize_sum(std::int64_t sum, float absmax_a, float absmax_b) noexcept;

/// Σ x·y in f64, with the sums that bound the error of the same sum in f32.
struct InnerProduct {
  double value = 0;
  double magnitude = 0;  ///< Σ |x·y|
  double square = 0;     ///< Σ (x·y)²
};
InnerProduct inner_product(std::span<const double> x, std::span<const double> y) noexcept;
/// An f32 sum of `count` products, in any order, is off by at most this times Σ |x·y| (Jeannerod
/// and Rump 2013).
double any_order_error(std::int64_t count) noexcept;

/// Row `index` of op(m), which is m or its transpose.
std::vector<double> row_of(ConstAnyMatrix m, bool transpose, std::int64_t index);

/// Some rows of the product op(a) · op(b) in f64: [rows.size(), cols].
struct Product {
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  std::vector<double> values;
  std::vector<double> magnitudes;  ///< InnerProduct::magnitude of each element
  std::vector<double> squares;
};
Product product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                bool transpose_b, std::span<const std::int64_t> rows);

}  // namespace switchback::measure
