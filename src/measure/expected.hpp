// SPDX-License-Identifier: Apache-2.0
// Measure: the expected results of whole operations, computed from the elements of
// measure/oracle.hpp.
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

/// A matrix [rows,cols] on the host. The values must be exact in the type.
Matrix in_dtype(const std::vector<float>& values, std::int64_t cols, DType dtype);

namespace oracle {

/// Codes of x[rows,cols] in the order of x (not transposed), and one absmax per group.
struct Codes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::int8_t> q;
  std::vector<float> absmax;
  [[nodiscard]] MatrixView<const std::int8_t> view() const { return {q.data(), rows, cols}; }
  [[nodiscard]] Codes transposed() const;
};
/// Stochastic with `rounding`; otherwise to nearest.
Codes quantize(ConstAnyMatrix x, Group group, const StochasticRounding* rounding = nullptr);
/// quantize_blockwise_transpose: codes of [cols, whole blocks], and the absmax of the columns of
/// each block.
Codes quantize_blocks(ConstAnyMatrix x, std::int64_t block_rows,
                      const StochasticRounding* rounding = nullptr);
/// rotate() into f32, in groups of `group` columns.
std::vector<float> rotate(ConstAnyMatrix x, std::int64_t group);
/// The values, rounded once to the dtype.
std::vector<float> rounded(std::vector<float> values, DType dtype);
/// gemm_blockwise of codes made by quantize_blocks, added to `before` (empty: zeros). Returns rows
/// of d[a.rows, b.rows] in the dtype.
std::vector<float> blockwise_product(const Codes& a, const Codes& b, std::int64_t block_rows,
                                     const Rows& rows, std::span<const float> before, DType dtype);

/// cast_to_int8 of each element.
std::vector<std::int8_t> cast(ConstAnyMatrix x);
/// dequantize_rowwise, rounded to the dtype: the values, exact in f32.
std::vector<float> dequantize(const Codes& codes, DType dtype);
/// The f32 column sums in the order quant.hpp defines.
std::vector<float> column_sums(ConstAnyMatrix g);

/// The epilogue over sums[rows.size(), N]: bit for bit what gemm writes in the dtype. absmax_b has
/// N values or one; bias has N values or is empty.
std::vector<float> epilogue(std::span<const std::int64_t> sums, const Rows& rows,
                            std::span<const float> absmax_a, std::span<const float> absmax_b,
                            std::span<const float> bias, std::int64_t n, DType dtype);

/// Sampled elements of a product a[M,K] · b[N,K]ᵀ of codes, and of its output.
struct Int8Product {
  Matrix sums, output;
};
/// The operands are in memory of the Context's device. absmax_a has M values, absmax_b N or one;
/// the bias has N values or is empty. For s32 there is no output.
Int8Product int8_product(Context& context, ConstAnyMatrix a, ConstAnyMatrix b, const Sample& sample,
                         ConstAnyMatrix absmax_a, ConstAnyMatrix absmax_b, ConstAnyMatrix bias,
                         DType dtype);
/// Sampled elements of op(a) · op(b); the operands are in memory of the Context's device.
Product floating_product(Context& context, ConstAnyMatrix a, bool transpose_a, ConstAnyMatrix b,
                         bool transpose_b, const Sample& sample);
/// Elements of a matrix in memory of the Context's device as floats, row after row.
std::vector<float> floats_of(Context& context, ConstAnyMatrix m, const Sample& sample);

/// Bounds for the difference between an f32 sum of products and the f64 one.
enum class SumBound {
  /// For all data: any_order_error().
  any_data,
  /// Rounding errors of random data add up like a random walk: their deviation is below
  /// 2⁻²⁴·√K·‖a·b‖₂/√6, and six of them are allowed (2.5, taken as 4, for the order may be any).
  random_data,
};
/// The bound in words. factor_error: see floating::Engine.
std::string sum_rule(SumBound kind, double factor_error);
/// Values plus bias plus the previous values of the output (both may be empty), and bounds. A bound
/// is that of the sum, plus one rounding to the dtype, plus the loss from flushing subnormal
/// operands, plus the error of the factors.
Reference reference_of(const Product& product, SumBound kind, DType dtype,
                       std::span<const float> bias, std::span<const float> before,
                       double factor_error = 0);

}  // namespace oracle

}  // namespace switchback::measure
