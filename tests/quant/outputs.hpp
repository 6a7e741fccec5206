// SPDX-License-Identifier: Apache-2.0
// Test support: the results of quantize operations, and their comparison bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {

/// An array of floats at any address, with guards around it.
struct Floats {
  Matrix<float> values;
  explicit Floats(std::int64_t count, std::int64_t misalignment_bytes = 0)
      : values(1, count, {0, misalignment_bytes}) {}
  std::span<float> span() { return {values.data(), static_cast<std::size_t>(values.cols())}; }
};

/// Success if two matrices have the same bits; otherwise the first place where they differ.
template <class T>
::testing::AssertionResult same_bits(const Matrix<T>& got, const Matrix<T>& want) {
  if (got == want) return ::testing::AssertionSuccess();
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const T x = got.get(r, c);
      const T y = want.get(r, c);
      if (std::memcmp(&x, &y, sizeof(T)) != 0)
        return ::testing::AssertionFailure()
               << "(" << r << "," << c << ") of [" << want.rows() << "," << want.cols() << "] is "
               << got.get_float(r, c) << ", want " << want.get_float(r, c);
    }
  return ::testing::AssertionFailure() << "shapes differ";
}
inline ::testing::AssertionResult same_codes(const Matrix<std::int8_t>& got,
                                             const Matrix<std::int8_t>& want) {
  return same_bits(got, want);
}

/// The results of operations, each with a name. They lie in memory as `layout` says; arrays of
/// floats have its misalignment.
class Outputs {
 public:
  explicit Outputs(Layout layout = {}) : layout_(layout) {}

  /// Makes the memory of a result. Its elements are `before`: no operation may rely on zeros there.
  template <class T>
  MatrixView<T> matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                       float before = 85.0f) {
    return add<T>(name, rows, cols, layout_, before).view();
  }
  MatrixView<std::int8_t> codes(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return matrix<std::int8_t>(name, rows, cols);
  }
  std::span<float> floats(const std::string& name, std::int64_t count, float before = 85.0f) {
    const Layout layout = {0, layout_.misalignment_bytes};
    return {add<float>(name, 1, count, layout, before).data(), static_cast<std::size_t>(count)};
  }
  /// Makes a copy of a matrix, which an operation changes in place.
  template <class T>
  MatrixView<T> copy_of(const std::string& name, const Matrix<T>& from) {
    return std::get<Matrix<T>>(results_.insert_or_assign(name, from).first->second).view();
  }
  /// From now on, results with known names are written to the memory that they have.
  void reuse() { reused_ = true; }

  template <class T>
  [[nodiscard]] const Matrix<T>& at(const std::string& name) const {
    return std::get<Matrix<T>>(results_.at(name));
  }
  [[nodiscard]] float float_at(const std::string& name, std::int64_t i) const {
    return at<float>(name).get(0, i);
  }

  /// Expects that `got` has the results of `want`, and maybe others, and that nothing was written
  /// around their memory.
  friend void expect_same(const Outputs& got, const Outputs& want) {
    for (const auto& [name, result] : want.results_)
      std::visit(
          [&]<class T>(const Matrix<T>& wanted) {
            EXPECT_TRUE(same_bits(got.at<T>(name), wanted)) << name;
            EXPECT_TRUE(got.at<T>(name).guards_intact()) << name;
          },
          result);
  }

 private:
  template <class T>
  Matrix<T>& add(const std::string& name, std::int64_t rows, std::int64_t cols, Layout layout,
                 float before) {
    if (reused_) return std::get<Matrix<T>>(results_.at(name));
    Matrix<T> m(rows, cols, layout);
    fill_constant(m, T(before));
    const auto [at, is_new] = results_.emplace(name, std::move(m));
    EXPECT_TRUE(is_new) << "two results are named " << name;
    return std::get<Matrix<T>>(at->second);
  }

  Layout layout_;
  bool reused_ = false;
  std::map<std::string,
           std::variant<Matrix<std::int8_t>, Matrix<float>, Matrix<half>, Matrix<bfloat16>>>
      results_;
};

}  // namespace switchback::test
