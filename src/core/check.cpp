// SPDX-License-Identifier: Apache-2.0
#include "core/check.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace switchback::core {

namespace {

struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

std::uintptr_t element_bytes(ConstAnyMatrix m) {
  return dtype_size_bytes(m.dtype);
}

// The addresses that matrix m occupies, from its first byte to one past its last element. The
// caller has checked that its sizes do not overflow.
ByteRange extent(ConstAnyMatrix m) {
  const auto begin = reinterpret_cast<std::uintptr_t>(m.data);
  const auto elements = static_cast<std::uintptr_t>((m.rows - 1) * m.stride + m.cols);
  return {begin, begin + elements * element_bytes(m)};
}

bool is_empty(ConstAnyMatrix m) {
  return m.data == nullptr || m.rows == 0 || m.cols == 0;
}

}  // namespace

void fail_formatted(Status status, fmt::string_view format, fmt::format_args args) {
  throw Error(status, fmt::vformat(format, args));
}

void check_matrix(std::string_view op, std::string_view argument, ConstAnyMatrix m) {
  require(dtype_size_bytes(m.dtype) != 0,
          "{}: {} has dtype {}; it must be one of f32 (0), f16 (1), "
          "bf16 (2), s8 (3), s32 (4)",
          op, argument, static_cast<std::int32_t>(m.dtype));
  require(m.rows >= 0, "{}: {} has rows = {}; it must not be negative", op, argument, m.rows);
  require(m.cols >= 0, "{}: {} has cols = {}; it must not be negative", op, argument, m.cols);
  require(m.stride >= m.cols, "{}: {} has stride = {}; it must be at least cols = {}", op, argument,
          m.stride, m.cols);
  if (m.rows == 0 || m.cols == 0) return;
  const auto limit =
      std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(element_bytes(m));
  require(m.cols <= limit && m.rows - 1 <= (limit - m.cols) / m.stride,
          "{}: {} {} spans more bytes than a 64-bit signed integer can count", op, argument, m);
  require(m.data != nullptr, "{}: {} {} has a null pointer; only an empty matrix may have one", op,
          argument, m);
  const auto range = extent(m);
  require(range.end >= range.begin, "{}: {} {} at {} runs past the end of the address space", op,
          argument, m, m.data);
}

std::string listed(std::span<const std::string> items, std::string_view conjunction) {
  std::string list;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) list += i + 1 < items.size() ? ", " : fmt::format(" {} ", conjunction);
    list += items[i];
  }
  return list;
}

void check_enum(std::string_view op, std::string_view argument, std::int32_t value,
                std::int32_t first, std::string_view (*name)(std::int32_t value)) {
  const auto exists = [&](std::int32_t v) { return v >= first && name(v) != "unknown"; };
  if (exists(value)) return;
  std::vector<std::string> values;  // valid values as text: "none (0)", "gelu_tanh (1)"
  for (std::int32_t v = first; exists(v); ++v)
    values.push_back(fmt::format("{} ({})", name(v), v));
  fail(Status::invalid_argument, "{}: {} = {}; it must be {}", op, argument, value, listed(values));
}

void check_float(std::string_view op, std::string_view argument, DType dtype) {
  require(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16,
          "{}: {} has dtype {}; it must be f32, f16 or bf16", op, argument, dtype_name(dtype));
}

void check_shape(std::string_view op, std::string_view argument, ConstAnyMatrix m,
                 std::int64_t want_rows, std::string_view rows_name, std::int64_t want_cols,
                 std::string_view cols_name) {
  require(m.rows == want_rows && m.cols == want_cols,
          "{}: {} is [{},{}]; it must be [{},{}] = [{},{}]", op, argument, m.rows, m.cols,
          rows_name, cols_name, want_rows, want_cols);
}

void check_span(std::string_view op, std::string_view argument, std::span<const float> span,
                std::int64_t want, std::string_view want_name) {
  require(span.size() == static_cast<std::size_t>(want),
          "{}: {} holds {} floats; it must hold {} = {}", op, argument, span.size(), want_name,
          want);
  require(want == 0 || span.data() != nullptr,
          "{}: {} is a null pointer; it must hold {} = {} floats", op, argument, want_name, want);
}

void check_block_rows(std::string_view op, std::string_view argument, std::int64_t block_rows) {
  require(is_block_rows(block_rows), "{}: {} = {}; it must be 128, 256, 512 or 1024", op, argument,
          block_rows);
}

bool overlaps(ConstAnyMatrix a, ConstAnyMatrix b) {
  if (is_empty(a) || is_empty(b)) return false;
  const auto ra = extent(a);
  const auto rb = extent(b);
  if (ra.end <= rb.begin || rb.end <= ra.begin) return false;
  const auto stride = static_cast<std::uintptr_t>(a.stride) * element_bytes(a);
  if (a.rows == 1 || b.rows == 1 ||
      stride != static_cast<std::uintptr_t>(b.stride) * element_bytes(b))
    return true;
  // With equal strides in bytes, the rows of both matrices repeat with the same period. So it is
  // enough to compare the offsets of their rows within one period.
  const auto width_a = static_cast<std::uintptr_t>(a.cols) * element_bytes(a);
  const auto width_b = static_cast<std::uintptr_t>(b.cols) * element_bytes(b);
  const auto b_after_a = (rb.begin - ra.begin) % stride;
  const auto distance = ra.begin <= rb.begin ? b_after_a : stride - (ra.begin - rb.begin) % stride;
  const auto offset = distance % stride;  // bytes from a row of a to the next row of b
  return offset < width_a || offset + width_b > stride;
}

void check_disjoint(std::string_view op, std::initializer_list<Operand> outputs,
                    std::initializer_list<Operand> inputs) {
  for (auto out = outputs.begin(); out != outputs.end(); ++out) {
    for (const auto& in : inputs)
      require(!overlaps(out->matrix, in.matrix),
              "{}: output {} overlaps input {}; they must not share memory", op, out->name,
              in.name);
    for (auto other = out + 1; other != outputs.end(); ++other)
      require(!overlaps(out->matrix, other->matrix),
              "{}: outputs {} and {} overlap; they must not share memory", op, out->name,
              other->name);
  }
}

}  // namespace switchback::core
