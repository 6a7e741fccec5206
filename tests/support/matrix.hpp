// SPDX-License-Identifier: Apache-2.0
// Test support: matrices that own their memory and detect writes outside their elements.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/unaligned.hpp"
#include "support/device.hpp"
#include "switchback/matrix.hpp"

namespace switchback::test {

/// The placement of a matrix in its buffer: extra elements between rows, and bytes by which the
/// first element is moved off its natural alignment.
struct Layout {
  std::int64_t padding = 0;
  std::int64_t misalignment_bytes = 0;
};

/// A [rows,cols] matrix of T. The bytes before it, between its rows and after it are filled with a
/// pattern that guards_intact() checks.
template <class T>
class Matrix {
 public:
  Matrix(std::int64_t rows, std::int64_t cols, Layout layout = {})
      : rows_(rows),
        cols_(cols),
        stride_(cols + layout.padding),
        offset_(guard_bytes + layout.misalignment_bytes) {
    const std::int64_t elements = rows > 0 ? rows * stride_ : 0;
    bytes_.assign(static_cast<std::size_t>(offset_ + elements * size + guard_bytes), pattern);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        set(r, c, T{});
  }

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(bytes_.data() + offset_); }
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(bytes_.data() + offset_);
  }
  [[nodiscard]] T get(std::int64_t r, std::int64_t c) const {
    return core::load(data(), r * stride_ + c);
  }
  void set(std::int64_t r, std::int64_t c, T value) { core::store(data(), r * stride_ + c, value); }
  [[nodiscard]] float get_float(std::int64_t r, std::int64_t c) const {
    return static_cast<float>(get(r, c));
  }

  [[nodiscard]] MatrixView<T> view() { return {data(), rows_, cols_, stride_}; }
  [[nodiscard]] MatrixView<const T> view() const { return {data(), rows_, cols_, stride_}; }
  [[nodiscard]] MatrixView<const T> cview() const { return view(); }

  /// Whether every byte outside the matrix's elements still holds the pattern.
  [[nodiscard]] ::testing::AssertionResult guards_intact() const {
    auto begin = bytes_.begin();  // of the bytes before row r, or after the last one
    for (std::int64_t r = 0; r <= rows_; ++r) {
      const auto end = r < rows_ ? bytes_.begin() + offset_ + r * stride_ * size : bytes_.end();
      const auto written = std::find_if(begin, end, [](auto byte) { return byte != pattern; });
      if (written != end)
        return ::testing::AssertionFailure()
               << "byte " << written - bytes_.begin() - offset_
               << " relative to the first element was written; matrix is [" << rows_ << "," << cols_
               << "] stride " << stride_;
      if (r < rows_) begin = end + cols_ * size;
    }
    return ::testing::AssertionSuccess();
  }

  friend bool operator==(const Matrix& a, const Matrix& b) {
    if (a.rows_ != b.rows_ || a.cols_ != b.cols_) return false;
    for (std::int64_t r = 0; r < a.rows_; ++r)
      if (a.cols_ > 0 && std::memcmp(reinterpret_cast<const char*>(a.data()) + r * a.stride_ * size,
                                     reinterpret_cast<const char*>(b.data()) + r * b.stride_ * size,
                                     static_cast<std::size_t>(a.cols_ * size)) != 0)
        return false;
    return true;
  }

 private:
  static constexpr std::int64_t size = static_cast<std::int64_t>(sizeof(T));
  static constexpr std::int64_t guard_bytes = 128;
  static constexpr unsigned char pattern = 0xA5;
  std::int64_t rows_, cols_, stride_, offset_;
  Vector<unsigned char> bytes_;
};

/// A vector as a matrix of one row, the form in which calls take a bias or its gradient db.
template <class T>
AnyMatrix as_row(Vector<T>& v) {
  const auto n = static_cast<std::int64_t>(v.size());
  return AnyMatrix(v.data(), dtype_of<T>, 1, n, n);
}

}  // namespace switchback::test
