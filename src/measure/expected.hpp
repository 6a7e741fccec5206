// SPDX-License-Identifier: Apache-2.0
// Measure: the expected results of whole operations, computed with the functions for single
// elements in measure/oracle.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "measure/compare.hpp"
#include "measure/oracle.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"
#include "switchback/rounding.hpp"

namespace switchback::measure {

/// Stores values in a matrix [rows,cols] on the host. They must be exact in the dtype.
Matrix in_dtype(const std::vector<float>& values, std::int64_t cols, DType dtype);

namespace oracle {

/// The int8 codes of a matrix [rows,cols], and one absmax for each group of its elements.
struct Codes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::int8_t> q;
  std::vector<float> absmax;
  [[nodiscard]] MatrixView<const std::int8_t> view() const { return {q.data(), rows, cols}; }
  [[nodiscard]] Codes transposed() const;
};
/// Quantizes x, stochastically if `rounding` is given, otherwise to nearest. The codes have the
/// order of x (they are not transposed).
Codes quantize(ConstAnyMatrix x, Group group, const StochasticRounding* rounding = nullptr);
/// The result of quantize_blockwise_transpose: codes of [cols, whole blocks], and the absmax of the
/// columns of each block.
Codes quantize_blocks(ConstAnyMatrix x, std::int64_t block_rows,
                      const StochasticRounding* rounding = nullptr);
/// The result of rotate() in f32, in groups of `group` columns.
std::vector<float> rotate(ConstAnyMatrix x, std::int64_t group);
/// Rounds the values once to the dtype.
std::vector<float> rounded(std::vector<float> values, DType dtype);
/// The result of gemm_blockwise for codes made by quantize_blocks, added to `before` (empty:
/// zeros). Returns rows of d[a.rows, b.rows] in the dtype.
std::vector<float> blockwise_product(const Codes& a, const Codes& b, std::int64_t block_rows,
                                     const Rows& rows, std::span<const float> before, DType dtype);

/// The result of cast_to_int8 for each element.
std::vector<std::int8_t> cast(ConstAnyMatrix x);
/// The result of dequantize_rowwise, rounded to the dtype, as f32 values, which are exact.
std::vector<float> dequantize(const Codes& codes, DType dtype);
/// The f32 column sums of g, added in the order that quant.hpp defines.
std::vector<float> column_sums(ConstAnyMatrix g);

/// Applies the epilogue to int32 sums[rows.size(), N]: bit for bit what gemm writes in the dtype.
/// absmax_b has N values or one; bias has N values or is empty.
std::vector<float> epilogue(std::span<const std::int64_t> sums, const Rows& rows,
                            std::span<const float> absmax_a, std::span<const float> absmax_b,
                            std::span<const float> bias, std::int64_t n, DType dtype);

/// Sampled elements of a product a[M,K] · b[N,K]ᵀ of codes, and of the output computed from it.
struct Int8Product {
  Matrix sums, output;
};
/// Computes sampled elements of an int8 product. The operands are in memory of the Context's
/// device. absmax_a has M values, absmax_b N or one; the bias has N values or is empty. For s32
/// there is no output.
Int8Product int8_product(Context& context, ConstAnyMatrix a, ConstAnyMatrix b, const Sample& sample,
                         ConstAnyMatrix absmax_a, ConstAnyMatrix absmax_b, ConstAnyMatrix bias,
                         DType dtype);
/// Computes sampled elements of op(a) · op(b). The operands are in memory of the Context's device.
Product floating_product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                         bool transpose_b, const Sample& sample);
/// Sampled elements of a matrix in memory of the Context's device as floats, row after row.
std::vector<float> floats_of(Context& context, ConstAnyMatrix m, const Sample& sample);

/// Bounds for the difference between an f32 sum of products and the f64 one.
enum class SumBound {
  /// A bound that holds for all data: any_order_error().
  any_data,
  /// A bound for random data, whose rounding errors add up like a random walk. Their deviation is
  /// below 2⁻²⁴·√K·‖a·b‖₂/√6. Six deviations are allowed, a factor of 2.5, which is taken as 4
  /// because the order may be any.
  random_data,
};
/// Describes the bound in words. For factor_error see floating::Engine.
std::string sum_rule(SumBound kind, double factor_error);
/// The expected output and its bounds. The output is the product's values plus the bias plus the
/// previous values of the output (both may be empty). A bound is that of the sum, plus one rounding
/// to the dtype, plus the loss from flushing subnormal operands, plus the error of the factors.
Reference reference_of(const Product& product, SumBound kind, DType dtype,
                       std::span<const float> bias, std::span<const float> before,
                       double factor_error = 0);

}  // namespace oracle

}  // namespace switchback::measure
