// SPDX-License-Identifier: Apache-2.0
// Test support: a guarded matrix with an element type chosen at run time, and the error of rounding
// to that type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/unaligned.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {

/// A Matrix whose elements are f32, f16 or bf16, chosen at run time.
class FloatMatrix {
 public:
  FloatMatrix(DType dtype, std::int64_t rows, std::int64_t cols, Layout layout = {})
      : dtype_(dtype),
        f32_(dtype == DType::f32 ? rows : 0, dtype == DType::f32 ? cols : 0, layout),
        f16_(dtype == DType::f16 ? rows : 0, dtype == DType::f16 ? cols : 0, layout),
        bf16_(dtype == DType::bf16 ? rows : 0, dtype == DType::bf16 ? cols : 0, layout) {}

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] AnyMatrix any() {
    switch (dtype_) {
      case DType::f16:
        return AnyMatrix(f16_.view());
      case DType::bf16:
        return AnyMatrix(bf16_.view());
      default:
        return AnyMatrix(f32_.view());
    }
  }
  [[nodiscard]] std::int64_t rows() { return any().rows; }
  [[nodiscard]] std::int64_t cols() { return any().cols; }
  [[nodiscard]] float get(std::int64_t r, std::int64_t c) {
    const AnyMatrix m = any();
    return core::load_float(m.data, m.dtype, r * m.stride + c);
  }
  void set(std::int64_t r, std::int64_t c, float value) {
    const AnyMatrix m = any();
    core::store_float(m.data, m.dtype, r * m.stride + c, value);
  }
  void fill(Random& random, float scale = 1.0f) {
    for (std::int64_t r = 0; r < rows(); ++r)
      for (std::int64_t c = 0; c < cols(); ++c)
        set(r, c, random.normal() * scale);
  }
  void fill_value(float value) {
    for (std::int64_t r = 0; r < rows(); ++r)
      for (std::int64_t c = 0; c < cols(); ++c)
        set(r, c, value);
  }
  void fill_row(std::int64_t r, float value) {
    for (std::int64_t c = 0; c < cols(); ++c)
      set(r, c, value);
  }
  [[nodiscard]] ::testing::AssertionResult guards_intact() const {
    for (const auto& result : {f32_.guards_intact(), f16_.guards_intact(), bf16_.guards_intact()})
      if (!result) return result;
    return ::testing::AssertionSuccess();
  }
  /// Bit for bit.
  friend bool operator==(const FloatMatrix& a, const FloatMatrix& b) {
    return a.dtype_ == b.dtype_ && a.f32_ == b.f32_ && a.f16_ == b.f16_ && a.bf16_ == b.bf16_;
  }

 private:
  DType dtype_;
  Matrix<float> f32_;
  Matrix<half> f16_;
  Matrix<bfloat16> bf16_;
};

/// A bound on the error of rounding `value` to `dtype`: half a unit in its last place, for f16 at
/// least half of the smallest subnormal.
inline double rounding_error(DType dtype, double value) {
  const double v = std::fabs(value);
  switch (dtype) {
    case DType::f16:  // f16 has 11 significant bits; subnormals are multiples of 2^-24
      return std::max(std::ldexp(v, -11), 0x1p-25);
    case DType::bf16:  // bf16 has 8 significant bits
      return std::ldexp(v, -8);
    default:
      return std::ldexp(v, -24);
  }
}

}  // namespace switchback::test
