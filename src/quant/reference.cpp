// SPDX-License-Identifier: Apache-2.0
#include "quant/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/unaligned.hpp"
#include "quant/gelu.hpp"
#include "quant/scalar.hpp"
#include "switchback/quant.hpp"

namespace switchback::quant::reference {

namespace {

float at(ConstAnyMatrix m, std::int64_t row, std::int64_t col) {
  return core::load_float(m.data, m.dtype, row * m.stride + col);
}

void put(MatrixView<std::int8_t> m, std::int64_t row, std::int64_t col, std::int8_t value) {
  core::store(m.data, row * m.stride + col, value);
}

float absmax_of_block(ConstAnyMatrix x, std::int64_t row, std::int64_t rows, std::int64_t col,
                      std::int64_t cols) {
  float absmax = 0.0f;
  for (std::int64_t r = row; r < row + rows; ++r)
    for (std::int64_t c = col; c < col + cols; ++c)
      absmax = larger_magnitude(absmax, at(x, r, c));
  return absmax;
}

void rowwise(ConstAnyMatrix x, MatrixView<std::int8_t> q, float* absmax) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const float scale = absmax_of_block(x, r, 1, 0, x.cols);
    core::store(absmax, r, scale);
    for (std::int64_t c = 0; c < x.cols; ++c)
      put(q, r, c, code(at(x, r, c), scale));
  }
}

void columnwise_transpose(ConstAnyMatrix x, MatrixView<std::int8_t> q_t, float* absmax) {
  for (std::int64_t c = 0; c < x.cols; ++c) {
    const float scale = absmax_of_block(x, 0, x.rows, c, 1);
    core::store(absmax, c, scale);
    for (std::int64_t r = 0; r < x.rows; ++r)
      put(q_t, c, r, code(at(x, r, c), scale));
  }
}

// Either layout may be absent (a null pointer).
void global(ConstAnyMatrix x, MatrixView<std::int8_t> q, MatrixView<std::int8_t> q_t,
            float* absmax) {
  const float scale = absmax_of_block(x, 0, x.rows, 0, x.cols);
  core::store(absmax, 0, scale);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const std::int8_t value = code(at(x, r, c), scale);
      if (q.data != nullptr) put(q, r, c, value);
      if (q_t.data != nullptr) put(q_t, c, r, value);
    }
}

void column_sums(ConstAnyMatrix x, float* sums, bool accumulate) {
  for (std::int64_t c = 0; c < x.cols; ++c) {
    float sum = 0.0f;
    for (std::int64_t begin = 0; begin < x.rows; begin += column_sum_block_rows) {
      const std::int64_t end = std::min(begin + column_sum_block_rows, x.rows);
      float block = 0.0f;
      for (std::int64_t r = begin; r < end; ++r)
        block += at(x, r, c);
      sum += block;
    }
    if (accumulate) sum = core::load(sums, c) + sum;
    core::store(sums, c, canonical(sum));
  }
}

void dequantize_rowwise(MatrixView<const std::int8_t> q, const float* absmax, AnyMatrix x) {
  for (std::int64_t r = 0; r < q.rows; ++r) {
    const float scale = core::load(absmax, r);
    for (std::int64_t c = 0; c < q.cols; ++c)
      core::store_float(x.data, x.dtype, r * x.stride + c,
                        value(core::load(q.data, r * q.stride + c), scale));
  }
}

void cast_to_int8(ConstAnyMatrix x, MatrixView<std::int8_t> q) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      put(q, r, c, truncate(at(x, r, c)));
}

void activation_forward(ConstAnyMatrix x, Activation activation, AnyMatrix y) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      core::store_float(y.data, y.dtype, r * y.stride + c,
                        canonical(gelu::value(activation, at(x, r, c))));
}

void activation_backward(ConstAnyMatrix g, ConstAnyMatrix x, Activation activation, AnyMatrix dx) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      core::store_float(dx.data, dx.dtype, r * dx.stride + c,
                        canonical(at(g, r, c) * gelu::derivative(activation, at(x, r, c))));
}

float rounded_to(DType dtype, float value) {
  std::array<std::byte, sizeof(float)> element;
  core::store_float(element.data(), dtype, 0, value);
  return core::load_float(element.data(), dtype, 0);
}

// Codes of activation(x), rounded to x's type; y may be absent.
void activation_forward_quantize(const Operands& o) {
  for (std::int64_t r = 0; r < o.x.rows; ++r) {
    const auto rounded = [&](std::int64_t c) {
      return rounded_to(o.x.dtype, gelu::value(o.activation, at(o.x, r, c)));
    };
    float absmax = 0.0f;
    for (std::int64_t c = 0; c < o.x.cols; ++c)
      absmax = larger_magnitude(absmax, rounded(c));
    core::store(o.absmax, r, absmax);
    for (std::int64_t c = 0; c < o.x.cols; ++c)
      put(o.q, r, c, code(rounded(c), absmax));
  }
  if (o.y.data != nullptr) activation_forward(o.x, o.activation, o.y);
}

}  // namespace

void run(Op op, const Operands& o) noexcept {
  switch (op) {
    case Op::rowwise:
      return rowwise(o.x, o.q, o.absmax);
    case Op::rowwise_column_sums:
      rowwise(o.x, o.q, o.absmax);
      return column_sums(o.x, o.column_sums, o.accumulate);
    case Op::column_sums:
      return column_sums(o.x, o.column_sums, o.accumulate);
    case Op::columnwise_transpose:
      return columnwise_transpose(o.x, o.q_t, o.absmax_cols);
    case Op::rowwise_and_columnwise_transpose:
      rowwise(o.x, o.q, o.absmax);
      return columnwise_transpose(o.x, o.q_t, o.absmax_cols);
    case Op::global:
    case Op::global_transpose:
    case Op::global_and_transpose:
      return global(o.x, o.q, o.q_t, o.absmax);
    case Op::dequantize_rowwise:
      return dequantize_rowwise(o.codes, o.scales, o.y);
    case Op::cast_to_int8:
      return cast_to_int8(o.x, o.q);
    case Op::activation_forward:
      return activation_forward(o.x, o.activation, o.y);
    case Op::activation_backward:
      return activation_backward(o.g, o.x, o.activation, o.y);
    case Op::activation_forward_quantize:
      return activation_forward_quantize(o);
    case Op::activation_backward_quantize:
      activation_backward(o.g, o.x, o.activation, o.y);
      rowwise(o.y, o.q, o.absmax);
      if (o.column_sums != nullptr) column_sums(o.y, o.column_sums, o.accumulate);
      return;
  }
}

}  // namespace switchback::quant::reference
