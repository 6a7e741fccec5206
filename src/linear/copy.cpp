// SPDX-License-Identifier: Apache-2.0
#include "linear/copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/assert.hpp"
#include "core/device.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "linear/scratch.hpp"

namespace switchback::linear {

void copy_dense(ContextState& state, ConstAnyMatrix from, void* to) {
  const std::size_t element = dtype_size_bytes(from.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(from.cols) * element;
  if (row_bytes == 0) return;
  if (state.runtime != nullptr)
    return state.runtime->copy(to, row_bytes, from.data,
                               static_cast<std::size_t>(from.stride) * element, row_bytes,
                               from.rows);
  constexpr std::int64_t task_bytes = 1 << 18;
  const auto grain = std::max<std::int64_t>(1, task_bytes / static_cast<std::int64_t>(row_bytes));
  state.threads.for_ranges(from.rows, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r)
      std::memcpy(
          static_cast<char*>(to) + static_cast<std::size_t>(r) * row_bytes,
          static_cast<const char*>(from.data) + static_cast<std::size_t>(r * from.stride) * element,
          row_bytes);
  });
}

core::AlignedBuffer copy_of(ContextState& state, ConstAnyMatrix from) {
  core::AlignedBuffer copy = state.make_buffer();
  if (from.data == nullptr) return copy;
  copy.reserve(bytes_of(from.rows, from.cols, from.dtype));
  copy_dense(state, from, copy.as<void>());
  return copy;
}

void round_to(ContextState& state, ConstAnyMatrix from, AnyMatrix to) {
  SWITCHBACK_ASSERT(from.dtype == DType::f32);
  if (state.runtime != nullptr) return state.runtime->convert(from, to, false);
  floating::finish(state, static_cast<const float*>(from.data), from.stride, nullptr, false, to);
}

}  // namespace switchback::linear
