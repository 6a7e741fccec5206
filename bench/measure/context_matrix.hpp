// SPDX-License-Identifier: Apache-2.0
// Bench: matrices in the memory of a Context's device, and their way to the host and back.
#pragma once

#include <cstdint>
#include <span>

#include "core/aligned_buffer.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

/// A contiguous [rows,cols] matrix that operations of the Context read and write. Elements are
/// uninitialised.
class ContextMatrix {
 public:
  ContextMatrix() = default;
  ContextMatrix(const Context& context, DType dtype, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] std::size_t size_bytes() const noexcept {
    return static_cast<std::size_t>(rows_ * cols_) * dtype_size_bytes(dtype_);
  }
  [[nodiscard]] AnyMatrix any() const noexcept {
    return {buffer_.as<void>(), dtype_, rows_, cols_, cols_};
  }
  template <class T>
  [[nodiscard]] MatrixView<T> view() const noexcept {
    return {buffer_.as<T>(), rows_, cols_};
  }
  /// All elements, which must be f32.
  [[nodiscard]] std::span<float> floats() const noexcept {
    return {buffer_.as<float>(), static_cast<std::size_t>(rows_ * cols_)};
  }

 private:
  core::AlignedBuffer buffer_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
};

/// A matrix of the device as the host can read it: a copy, waited for, or on the CPU itself.
class HostCopy {
 public:
  HostCopy(Context& context, ConstAnyMatrix m);
  HostCopy(Context& context, std::span<const float> values);
  [[nodiscard]] ConstAnyMatrix any() const noexcept { return matrix_; }
  template <class T>
  [[nodiscard]] MatrixView<const T> view() const noexcept {
    return {static_cast<const T*>(matrix_.data), matrix_.rows, matrix_.cols, matrix_.stride};
  }
  [[nodiscard]] std::span<const float> floats() const noexcept {
    return {static_cast<const float*>(matrix_.data), static_cast<std::size_t>(matrix_.cols)};
  }

 private:
  core::AlignedBuffer buffer_;
  ConstAnyMatrix matrix_;
};

/// Fills an output of the device with what no operation writes: NaN, or the code -128.
void poison(Context& context, AnyMatrix m);
/// fill_normal (see random_data.hpp) wherever the matrix is.
void fill_normal_anywhere(Context& context, AnyMatrix m, std::uint64_t seed, float scale = 1.0f);

}  // namespace switchback::bench
