// SPDX-License-Identifier: Apache-2.0
// Entry zone: non-owning row-major matrix views, typed (MatrixView) and type-erased (AnyMatrix).
#pragma once

#include <cstdint>
#include <type_traits>

#include "switchback/types.hpp"

namespace switchback {

/// A row-major matrix that the caller owns. Element (r, c) lies at data[r * stride + c]; stride is
/// in elements and at least cols. Data need not be aligned, not even to the element size. The
/// pointer refers to memory of the Context's device; it may be null if rows or cols is zero.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  MatrixView() = default;
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_) noexcept
      : data(data_), rows(rows_), cols(cols_), stride(cols_) {}
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_) noexcept
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}

  // A view of mutable elements is a view of const elements.
  operator MatrixView<const T>() const noexcept requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }
};

/// A MatrixView whose element type is a value, for operations that accept several element types.
struct AnyMatrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  AnyMatrix() = default;
  AnyMatrix(void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_,
            std::int64_t stride_) noexcept
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}
  template <class T>
  requires(!std::is_const_v<T>) AnyMatrix(MatrixView<T> m)
  noexcept : data(m.data), dtype(dtype_of<T>), rows(m.rows), cols(m.cols), stride(m.stride) {}
};

/// AnyMatrix whose elements are only read.
struct ConstAnyMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  ConstAnyMatrix() = default;
  ConstAnyMatrix(const void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_,
                 std::int64_t stride_) noexcept
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}
  ConstAnyMatrix(AnyMatrix m) noexcept
      : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), stride(m.stride) {}
  template <class T>
  ConstAnyMatrix(MatrixView<T> m) noexcept
      : data(m.data),
        dtype(dtype_of<std::remove_const_t<T>>),
        rows(m.rows),
        cols(m.cols),
        stride(m.stride) {}
};

}  // namespace switchback
