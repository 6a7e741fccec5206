// SPDX-License-Identifier: Apache-2.0
// Bench: a matrix of any element type that owns its memory, which this program can read (see
// visible_memory.hpp).
#pragma once

#include <cstdint>

#include "bench/measure/visible_memory.hpp"
#include "core/aligned_buffer.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

/// A contiguous [rows,cols] matrix, 64-byte aligned. Elements are uninitialised: fill before use.
class HostMatrix {
 public:
  HostMatrix() = default;
  HostMatrix(DType dtype, std::int64_t rows, std::int64_t cols)
      : buffer_(visible_source()), dtype_(dtype), rows_(rows), cols_(cols) {
    buffer_.reserve(size_bytes());
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept {
    return static_cast<std::size_t>(rows_ * cols_) * dtype_size_bytes(dtype_);
  }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] AnyMatrix any() const noexcept {
    return {buffer_.as<void>(), dtype_, rows_, cols_, cols_};
  }
  /// The elements as T, which must be of the matrix' dtype.
  template <class T>
  [[nodiscard]] MatrixView<T> view() const noexcept {
    return {buffer_.as<T>(), rows_, cols_};
  }

 private:
  core::AlignedBuffer buffer_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

}  // namespace switchback::bench
