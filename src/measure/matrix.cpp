// SPDX-License-Identifier: Apache-2.0
#include "measure/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/context_state.hpp"
#include "core/device.hpp"
#include "core/unaligned.hpp"

namespace switchback::measure {

namespace {

std::size_t row_bytes(ConstAnyMatrix m) {
  return static_cast<std::size_t>(m.cols) * dtype_size_bytes(m.dtype);
}
std::size_t stride_bytes(ConstAnyMatrix m) {
  return static_cast<std::size_t>(m.stride) * dtype_size_bytes(m.dtype);
}
const std::byte* row_of(ConstAnyMatrix m, std::int64_t r) {
  return static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m);
}
std::byte* row_of(AnyMatrix m, std::int64_t r) {
  return static_cast<std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m);
}

std::string text_of(ConstAnyMatrix m, std::int64_t r, std::int64_t c) {
  const std::int64_t at = r * m.stride + c;
  switch (m.dtype) {
    case DType::s8:
      return fmt::format("{}", core::load(static_cast<const std::int8_t*>(m.data), at));
    case DType::s32:
      return fmt::format("{}", core::load(static_cast<const std::int32_t*>(m.data), at));
    default:
      return fmt::format("{:g}", core::load_float(m.data, m.dtype, at));
  }
}

}  // namespace

Matrix::Matrix(core::AlignedBuffer buffer, DType dtype, std::int64_t rows, std::int64_t cols,
               std::int64_t stride, std::size_t offset_bytes)
    : buffer_(std::move(buffer)),
      dtype_(dtype),
      rows_(rows),
      cols_(cols),
      stride_(std::max(stride, cols)),
      offset_bytes_(offset_bytes) {
  buffer_.reserve(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_) *
                      dtype_size_bytes(dtype) +
                  offset_bytes_);
}

Matrix::Matrix(DType dtype, std::int64_t rows, std::int64_t cols)
    : Matrix(core::AlignedBuffer(), dtype, rows, cols, cols, 0) {}

Matrix::Matrix(const Context& context, DType dtype, std::int64_t rows, std::int64_t cols,
               std::int64_t stride, std::int64_t alignment)
    : Matrix(context.state().make_buffer(), dtype, rows, cols, stride,
             alignment == 1 ? dtype_size_bytes(dtype) : 0) {}

Matrix Matrix::visible(const Context& context, DType dtype, std::int64_t rows, std::int64_t cols) {
  const auto& runtime = context.state().runtime;
  return {core::AlignedBuffer(runtime != nullptr ? runtime->visible_memory() : nullptr),
          dtype,
          rows,
          cols,
          cols,
          0};
}

void copy(Context& context, ConstAnyMatrix from, AnyMatrix to) {
  if (from.rows == 0 || from.cols == 0) return;
  queue_copy(context, from, to);
  if (context.state().runtime != nullptr) context.state().runtime->synchronize();
}

void queue_copy(Context& context, ConstAnyMatrix from, AnyMatrix to) {
  if (from.rows == 0 || from.cols == 0) return;
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr)
    return runtime->copy(to.data, stride_bytes(to), from.data, stride_bytes(from), row_bytes(from),
                         from.rows);
  for (std::int64_t r = 0; r < from.rows; ++r)
    std::memcpy(row_of(to, r), row_of(from, r), row_bytes(from));
}

Matrix copy_of(Context& context, const Matrix& from) {
  const AnyMatrix m = from.any();
  Matrix to(context, m.dtype, m.rows, m.cols, m.stride, from.alignment());
  copy(context, m, to.any());
  return to;
}

Matrix host_copy(Context& context, ConstAnyMatrix m) {
  Matrix to(m.dtype, m.rows, m.cols);
  copy(context, m, to.any());
  return to;
}

Matrix to_host(Context& context, ConstAnyMatrix m) {
  if (context.state().runtime != nullptr) return host_copy(context, m);
  Matrix same;
  same.borrowed_ = const_cast<void*>(m.data);
  same.dtype_ = m.dtype;
  same.rows_ = m.rows;
  same.cols_ = m.cols;
  same.stride_ = m.stride;
  return same;
}

Matrix to_host(Context& context, std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return to_host(context, ConstAnyMatrix(values.data(), DType::f32, 1, count, count));
}

void poison(Context& context, AnyMatrix m) {
  if (m.rows == 0 || m.cols == 0) return;
  // A value with all bits set is a NaN in f32, f16 and bf16.
  const int byte = m.dtype == DType::s8 ? 0x80 : 0xFF;
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr)
    return runtime->fill(m.data, byte,
                         static_cast<std::size_t>(m.rows - 1) * stride_bytes(m) + row_bytes(m));
  for (std::int64_t r = 0; r < m.rows; ++r)
    std::memset(row_of(m, r), byte, row_bytes(m));
}

std::string difference(Context& context, ConstAnyMatrix m, ConstAnyMatrix want) {
  const Matrix host = to_host(context, m);
  const ConstAnyMatrix got = host.any();
  for (std::int64_t r = 0; r < got.rows; ++r) {
    const std::byte* is = row_of(got, r);
    const std::byte* should = row_of(want, r);
    if (std::memcmp(is, should, row_bytes(got)) == 0) continue;
    const auto at = std::mismatch(is, is + row_bytes(got), should).first - is;
    const std::int64_t c = at / static_cast<std::int64_t>(dtype_size_bytes(got.dtype));
    return fmt::format("element ({},{}) is {}, not {}", r, c, text_of(got, r, c),
                       text_of(want, r, c));
  }
  return {};
}

}  // namespace switchback::measure
