// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/context_matrix.hpp"

#include "bench/measure/host_matrix.hpp"
#include "bench/run/check.hpp"
#include "core/context_state.hpp"
#include "measure/data.hpp"

namespace switchback::bench {

namespace {

std::size_t row_bytes(ConstAnyMatrix m) {
  return static_cast<std::size_t>(m.cols) * dtype_size_bytes(m.dtype);
}

}  // namespace

ContextMatrix::ContextMatrix(const Context& context, DType dtype, std::int64_t rows,
                             std::int64_t cols)
    : buffer_(context.state().make_buffer()), dtype_(dtype), rows_(rows), cols_(cols) {
  buffer_.reserve(size_bytes());
}

HostCopy::HostCopy(Context& context, ConstAnyMatrix m) : matrix_(m) {
  core::DeviceRuntime* runtime = context.state().runtime.get();
  if (runtime == nullptr) return;
  buffer_.reserve(row_bytes(m) * static_cast<std::size_t>(m.rows));
  const std::size_t stride_bytes = static_cast<std::size_t>(m.stride) * dtype_size_bytes(m.dtype);
  runtime->copy(buffer_.as<void>(), row_bytes(m), m.data, stride_bytes, row_bytes(m), m.rows);
  runtime->synchronize();
  matrix_ = {buffer_.as<void>(), m.dtype, m.rows, m.cols, m.cols};
}

HostCopy::HostCopy(Context& context, std::span<const float> values)
    : HostCopy(context, {values.data(), DType::f32, 1, static_cast<std::int64_t>(values.size()),
                         static_cast<std::int64_t>(values.size())}) {}

void poison(Context& context, AnyMatrix m) {
  if (context.state().runtime == nullptr) return poison(m);
  // All bits set is a NaN in f32, f16 and bf16.
  context.state().runtime->fill(m.data, m.dtype == DType::s8 ? 0x80 : 0xFF,
                                row_bytes(m) * static_cast<std::size_t>(m.rows));
}

void fill_normal_anywhere(Context& context, AnyMatrix m, std::uint64_t seed, float scale) {
  core::DeviceRuntime* runtime = context.state().runtime.get();
  if (runtime == nullptr) return measure::fill_normal(context, m, seed, scale);
  ContextOptions cpu;
  cpu.device = "cpu";
  Context host(cpu);
  const HostMatrix data(m.dtype, m.rows, m.cols);
  measure::fill_normal(host, data.any(), seed, scale);
  runtime->copy(m.data, row_bytes(m), data.any().data, row_bytes(m), row_bytes(m), m.rows);
  runtime->synchronize();
}

}  // namespace switchback::bench
