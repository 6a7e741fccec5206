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
  T* data = nullptr;        ///< element (0, 0), in memory of the Context's device
  std::int64_t rows = 0;    ///< the number of rows
  std::int64_t cols = 0;    ///< the number of columns
  std::int64_t stride = 0;  ///< elements from the start of one row to that of the next

  MatrixView() = default;
  /// A matrix without gaps between its rows: the stride is `cols_`.
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_) noexcept
      : data(data_), rows(rows_), cols(cols_), stride(cols_) {}
  /// A matrix whose rows begin `stride_` elements apart.
  MatrixView(T* data_, std::int64_t rows_, std::int64_t cols_, std::int64_t stride_) noexcept
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}

  /// Converts a view of mutable elements to a view of const elements.
  operator MatrixView<const T>() const noexcept requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }
};

/// A matrix view whose element type is a run-time value, for operations that accept several types.
struct AnyMatrix {
  void* data = nullptr;      ///< element (0, 0), in memory of the Context's device
  DType dtype = DType::f32;  ///< the type of the elements
  std::int64_t rows = 0;     ///< the number of rows
  std::int64_t cols = 0;     ///< the number of columns
  std::int64_t stride = 0;   ///< elements from the start of one row to that of the next

  AnyMatrix() = default;
  /// A view of a matrix whose element type is known only at run time.
  AnyMatrix(void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_,
            std::int64_t stride_) noexcept
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}
  /// Converts a typed view to a type-erased view of the same matrix.
  template <class T>
  requires(!std::is_const_v<T>) AnyMatrix(MatrixView<T> m)
  noexcept : data(m.data), dtype(dtype_of<T>), rows(m.rows), cols(m.cols), stride(m.stride) {}
};

/// An AnyMatrix whose elements are only read.
struct ConstAnyMatrix {
  const void* data = nullptr;  ///< element (0, 0), in memory of the Context's device
  DType dtype = DType::f32;    ///< the type of the elements
  std::int64_t rows = 0;       ///< the number of rows
  std::int64_t cols = 0;       ///< the number of columns
  std::int64_t stride = 0;     ///< elements from the start of one row to that of the next

  ConstAnyMatrix() = default;
  /// A view of a matrix whose element type is known only at run time.
  ConstAnyMatrix(const void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_,
                 std::int64_t stride_) noexcept
      : data(data_), dtype(dtype_), rows(rows_), cols(cols_), stride(stride_) {}
  /// Converts a view of mutable elements to a view of const elements.
  ConstAnyMatrix(AnyMatrix m) noexcept
      : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), stride(m.stride) {}
  /// Converts a typed view to a type-erased view of the same matrix.
  template <class T>
  ConstAnyMatrix(MatrixView<T> m) noexcept
      : data(m.data),
        dtype(dtype_of<std::remove_const_t<T>>),
        rows(m.rows),
        cols(m.cols),
        stride(m.stride) {}
};

}  // namespace switchback
