// SPDX-License-Identifier: Apache-2.0
#include "autotune/tasks/operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "core/unaligned.hpp"
#include "measure/data.hpp"

namespace switchback::autotune {

namespace {

std::size_t row_bytes(ConstAnyMatrix m) {
  return static_cast<std::size_t>(m.cols) * dtype_size_bytes(m.dtype);
}
std::size_t stride_bytes(ConstAnyMatrix m) {
  return static_cast<std::size_t>(m.stride) * dtype_size_bytes(m.dtype);
}

// What a system reports may be of a whole host, of which one process has a part.
double last_cache_bytes(Context& context) noexcept {
  constexpr double usual = 32.0 * (1 << 20);
  double cache = static_cast<double>(core::cpu_caches().l3_bytes);
  if (const auto& runtime = context.state().runtime; runtime != nullptr)
    cache = static_cast<double>(runtime->info().l2_bytes);
  return cache > 0 ? std::min(cache, 4 * usual) : usual;
}

Context host_context() {
  ContextOptions options;
  options.device = "cpu";
  return Context(options);
}

// Calls with the host's memory of each row to write; on a device with a copy that is sent after.
template <class Write>
void write_rows(Context& context, AnyMatrix m, const Write& write) {
  core::DeviceRuntime* runtime = context.state().runtime.get();
  if (runtime == nullptr) {
    for (std::int64_t r = 0; r < m.rows; ++r)
      write(r, static_cast<std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m));
    return;
  }
  std::vector<std::byte> image(static_cast<std::size_t>(m.rows) * row_bytes(m));
  for (std::int64_t r = 0; r < m.rows; ++r)
    write(r, image.data() + static_cast<std::size_t>(r) * row_bytes(m));
  runtime->copy(m.data, stride_bytes(m), image.data(), row_bytes(m), row_bytes(m), m.rows);
  runtime->synchronize();
}

}  // namespace

Operand::Operand(Context& context, DType dtype, std::int64_t rows, std::int64_t cols,
                 std::int64_t stride, std::int64_t alignment)
    : buffer_(context.state().make_buffer()),
      dtype_(dtype),
      rows_(rows),
      cols_(cols),
      stride_(std::max(stride, cols)),
      offset_bytes_(alignment == 1 ? dtype_size_bytes(dtype) : 0) {
  buffer_.reserve(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_) *
                      dtype_size_bytes(dtype) +
                  offset_bytes_);
}

Operand copy_of(Context& context, const Operand& from) {
  const AnyMatrix m = from.any();
  Operand to(context, m.dtype, m.rows, m.cols, m.stride, from.alignment());
  if (from.empty()) return to;
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr) {
    runtime->copy(to.data(), stride_bytes(m), m.data, stride_bytes(m), row_bytes(m), m.rows);
    return to;
  }
  for (std::int64_t r = 0; r < m.rows; ++r)
    std::memcpy(
        static_cast<std::byte*>(to.data()) + static_cast<std::size_t>(r) * stride_bytes(m),
        static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m),
        row_bytes(m));
  return to;
}

std::size_t rotation(Context& context, double bytes) noexcept {
  constexpr double most = 4;
  return static_cast<std::size_t>(
      std::clamp(std::ceil(1.5 * last_cache_bytes(context) / std::max(bytes, 1.0)), 1.0, most));
}

CacheSweep::CacheSweep(Context& context, double task_bytes)
    : context_(context), buffer_(context.state().make_buffer()) {
  constexpr double times_the_task = 4;
  const double most = last_cache_bytes(context);
  double least = 0;
  if (context.state().on_cpu()) {
    constexpr double usual_l2 = 1 << 20;
    const auto l2 = static_cast<double>(core::cpu_caches().l2_bytes);
    least = 2 * (l2 > 0 ? l2 : usual_l2) * context.state().threads.count();
  }
  bytes_ = static_cast<std::size_t>(
      std::clamp(times_the_task * task_bytes, std::min(least, most), most));
}

double CacheSweep::seconds() const noexcept {
  // A thread's stream to and from memory, at its slowest; a GPU's is much faster.
  const double bytes_per_s = context_.state().on_cpu() ? 6e9 : 200e9;
  return static_cast<double>(bytes_) / bytes_per_s;
}

void CacheSweep::run() noexcept {
  if (failed_) return;
  try {
    buffer_.reserve(bytes_);
    if (core::DeviceRuntime* runtime = context_.state().runtime.get(); runtime != nullptr)
      return runtime->fill(buffer_.as<std::byte>(), 0, bytes_);
    constexpr std::size_t line = 64;
    auto* const bytes = buffer_.as<std::uint8_t>();
    const auto lines = static_cast<std::int64_t>(bytes_ / line);
    const int workers = context_.state().threads.count();
    context_.state().threads.for_each(workers, [&](std::int64_t part, int) {
      for (std::int64_t i = lines * part / workers; i < lines * (part + 1) / workers; ++i)
        ++bytes[static_cast<std::size_t>(i) * line];
    });
  } catch (...) {
    failed_ = true;
  }
}

void fill_random(Context& context, AnyMatrix m, std::uint64_t seed) {
  if (m.rows == 0 || m.cols == 0) return;
  const std::int64_t values = std::min<std::int64_t>(m.rows * m.cols, (1 << 20) + 7);
  const std::size_t element = dtype_size_bytes(m.dtype);
  std::vector<std::byte> block(static_cast<std::size_t>(values) * element);
  Context host = host_context();
  if (m.dtype == DType::s8)
    measure::fill_codes(host, {reinterpret_cast<std::int8_t*>(block.data()), 1, values}, seed);
  else
    measure::fill_normal(host, {block.data(), m.dtype, 1, values, values}, seed);
  std::int64_t at = 0;
  write_rows(context, m, [&](std::int64_t, std::byte* row) {
    for (std::int64_t done = 0; done < m.cols;) {
      const std::int64_t count = std::min(m.cols - done, values - at);
      std::memcpy(row + static_cast<std::size_t>(done) * element,
                  block.data() + static_cast<std::size_t>(at) * element,
                  static_cast<std::size_t>(count) * element);
      done += count;
      at = (at + count) % values;
    }
  });
}

void fill_scales(Context& context, float* values, std::int64_t count, std::uint64_t seed) {
  if (count == 0) return;
  write_rows(context, {values, DType::f32, 1, count, count}, [&](std::int64_t, std::byte* row) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t bits = measure::random_bits(seed, static_cast<std::uint64_t>(i)) >> 40;
      const float value = 0.5f + static_cast<float>(bits) * 0x1p-24f;
      std::memcpy(row + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
  });
}

void poison(Context& context, AnyMatrix m) {
  if (m.rows == 0 || m.cols == 0) return;
  const int byte = m.dtype == DType::s8 ? 0x80 : 0xFF;
  if (context.state().runtime != nullptr) {
    const std::size_t bytes = static_cast<std::size_t>(m.rows - 1) * stride_bytes(m) + row_bytes(m);
    context.state().runtime->fill(m.data, byte, bytes);
    return;
  }
  write_rows(context, m,
             [&](std::int64_t, std::byte* row) { std::memset(row, byte, row_bytes(m)); });
}

std::vector<std::byte> read_back(Context& context, ConstAnyMatrix m) {
  std::vector<std::byte> image(static_cast<std::size_t>(m.rows) * row_bytes(m));
  if (image.empty()) return image;
  core::DeviceRuntime* runtime = context.state().runtime.get();
  if (runtime != nullptr) {
    runtime->copy(image.data(), row_bytes(m), m.data, stride_bytes(m), row_bytes(m), m.rows);
    runtime->synchronize();
    return image;
  }
  for (std::int64_t r = 0; r < m.rows; ++r)
    std::memcpy(
        image.data() + static_cast<std::size_t>(r) * row_bytes(m),
        static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m),
        row_bytes(m));
  return image;
}

std::string difference(Context& context, ConstAnyMatrix m, std::span<const std::byte> want) {
  std::vector<std::byte> copied;
  if (context.state().runtime != nullptr) {
    copied = read_back(context, m);
    m = {copied.data(), m.dtype, m.rows, m.cols, m.cols};
  }
  const auto value = [&](const void* data, std::int64_t index) {
    switch (m.dtype) {
      case DType::s8:
        return fmt::format("{}", core::load(static_cast<const std::int8_t*>(data), index));
      case DType::s32:
        return fmt::format("{}", core::load(static_cast<const std::int32_t*>(data), index));
      default:
        return fmt::format("{:g}", core::load_float(data, m.dtype, index));
    }
  };
  for (std::int64_t r = 0; r < m.rows; ++r) {
    const auto* got =
        static_cast<const std::byte*>(m.data) + static_cast<std::size_t>(r) * stride_bytes(m);
    const std::byte* wanted = want.data() + static_cast<std::size_t>(r) * row_bytes(m);
    if (std::memcmp(got, wanted, row_bytes(m)) == 0) continue;
    const auto at = std::mismatch(got, got + row_bytes(m), wanted).first - got;
    const std::int64_t c = at / static_cast<std::int64_t>(dtype_size_bytes(m.dtype));
    return fmt::format("element ({},{}) is {}, not {}", r, c, value(got, c), value(wanted, c));
  }
  return {};
}

}  // namespace switchback::autotune
