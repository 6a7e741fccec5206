// SPDX-License-Identifier: Apache-2.0
// Measure: a matrix that owns its memory, on the host or on a Context's device. Also operations on
// its elements: copying them, reading them on the host, comparing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/aligned_buffer.hpp"
#include "core/unaligned.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

/// A [rows,cols] matrix of any element type. Elements are uninitialised: fill them before use.
class Matrix {
 public:
  Matrix() = default;
  /// A contiguous matrix in the host's memory.
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols);
  /// A matrix in the memory of the Context's device, with row stride `stride` (0: cols). With
  /// alignment 1 (see core::alignment_class) it begins one element after an aligned address.
  Matrix(const Context& context, DType dtype, std::int64_t rows, std::int64_t cols,
         std::int64_t stride = 0, std::int64_t alignment = 0);
  /// A matrix in memory that both the host and operations of the Context's device can access; the
  /// host only while no operation is queued that uses it. Slow on a device: it is for checks.
  static Matrix visible(const Context& context, DType dtype, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] bool empty() const noexcept { return rows_ * cols_ == 0; }
  /// Bytes of the elements, without the gaps between rows.
  [[nodiscard]] std::size_t size_bytes() const noexcept {
    return static_cast<std::size_t>(rows_ * cols_) * dtype_size_bytes(dtype_);
  }
  [[nodiscard]] std::int64_t alignment() const noexcept { return offset_bytes_ > 0 ? 1 : 0; }

  [[nodiscard]] void* data() const noexcept {
    if (borrowed_ != nullptr) return borrowed_;
    auto* begin = buffer_.as<std::byte>();
    return begin == nullptr ? nullptr : begin + offset_bytes_;
  }
  [[nodiscard]] AnyMatrix any() const noexcept { return {data(), dtype_, rows_, cols_, stride_}; }
  /// The elements as T, which must be the matrix's type.
  template <class T>
  [[nodiscard]] MatrixView<T> view() const noexcept {
    return {static_cast<T*>(data()), rows_, cols_, stride_};
  }
  /// All elements of a contiguous matrix as T.
  template <class T>
  [[nodiscard]] std::span<T> values() const noexcept {
    return {static_cast<T*>(data()), static_cast<std::size_t>(rows_ * cols_)};
  }
  [[nodiscard]] std::span<float> floats() const noexcept { return values<float>(); }

 private:
  friend Matrix to_host(Context& context, ConstAnyMatrix m);
  Matrix(core::AlignedBuffer buffer, DType dtype, std::int64_t rows, std::int64_t cols,
         std::int64_t stride, std::size_t offset_bytes);

  core::AlignedBuffer buffer_;
  void* borrowed_ = nullptr;  ///< elements of another matrix; null: this matrix has its own
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t stride_ = 0;
  std::size_t offset_bytes_ = 0;
};

/// Copies `from` to `to`, which has the same shape and type. Either may be in the host's memory or
/// in that of the Context's device. Waits until the copy is done.
void copy(Context& context, ConstAnyMatrix from, AnyMatrix to);
/// Like copy(), but on a device the copy is only queued.
void queue_copy(Context& context, ConstAnyMatrix from, AnyMatrix to);
/// Makes another matrix of the Context's device with the same elements, stride and alignment.
Matrix copy_of(Context& context, const Matrix& from);
/// Makes a contiguous copy in the host's memory.
Matrix host_copy(Context& context, ConstAnyMatrix m);
/// The matrix in memory that the host can read: on a CPU Context its own elements, which must
/// outlive the result; on another device a copy.
Matrix to_host(Context& context, ConstAnyMatrix m);
inline Matrix to_host(Context& context, const Matrix& m) {
  return to_host(context, ConstAnyMatrix(m.any()));
}
Matrix to_host(Context& context, std::span<const float> values);

/// Fills m with a value that no operation writes: NaN, the code -128, the sum -1.
void poison(Context& context, AnyMatrix m);

/// Element (r, c) of a matrix on the host. Exact for every type.
inline double element(ConstAnyMatrix m, std::int64_t r, std::int64_t c) noexcept {
  const std::int64_t at = r * m.stride + c;
  switch (m.dtype) {
    case DType::s8:
      return core::load(static_cast<const std::int8_t*>(m.data), at);
    case DType::s32:
      return core::load(static_cast<const std::int32_t*>(m.data), at);
    default:
      return core::load_float(m.data, m.dtype, at);
  }
}

/// Describes the first difference between m and `want`, a host matrix with m's columns and at least
/// its rows; empty if there is none. Bits are compared, so NaNs with different bits differ.
std::string difference(Context& context, ConstAnyMatrix m, ConstAnyMatrix want);

}  // namespace switchback::measure
