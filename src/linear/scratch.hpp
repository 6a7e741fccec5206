// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: helpers that the passes of all layers share: sizes, scratch matrices, and the
// operands of an int8 product with a layer's weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/workspace.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/matrix.hpp"

namespace switchback::linear {

inline std::size_t count_of(std::int64_t rows) noexcept {
  return static_cast<std::size_t>(rows);
}
inline std::size_t bytes_of(std::int64_t rows, std::int64_t cols, DType dtype) noexcept {
  return count_of(rows) * count_of(cols) * dtype_size_bytes(dtype);
}
using core::take_matrix;

/// A matrix of int8 codes with one scale per row.
struct RowCodes {
  MatrixView<std::int8_t> q;
  std::span<float> absmax;
};
/// Returns memory for codes with one scale per row: the given memory, or scratch memory where it is
/// null.
inline RowCodes take_codes(core::Workspace::Frame& frame, std::int64_t rows, std::int64_t cols,
                           MatrixView<std::int8_t> codes = {}, float* absmax = nullptr) {
  if (codes.data == nullptr) codes = {frame.take<std::int8_t>(rows * cols), rows, cols};
  if (absmax == nullptr) absmax = frame.take<float>(rows);
  return {codes, {absmax, count_of(rows)}};
}
/// The arguments of the product d = a · Bᵀ, where B is the layer's packed weight.
template <class Args>
Args product_of(const RowCodes& a, const QuantizedWeight& b, AnyMatrix d, std::string_view engine) {
  Args args;
  args.a = a.q;
  args.packed_b = &b.packed();
  args.d = d;
  args.absmax_a = a.absmax;
  args.absmax_b = b.absmax();
  args.engine = engine;
  return args;
}

}  // namespace switchback::linear
