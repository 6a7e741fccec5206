// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: sizes, and scratch matrices of the passes of the layers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.hpp"
#include "switchback/matrix.hpp"

namespace switchback::linear {

inline std::size_t count_of(std::int64_t rows) noexcept {
  return static_cast<std::size_t>(rows);
}
inline std::size_t bytes_of(std::int64_t rows, std::int64_t cols, DType dtype) noexcept {
  return count_of(rows) * count_of(cols) * dtype_size_bytes(dtype);
}
inline AnyMatrix take_matrix(core::Workspace::Frame& frame, DType dtype, std::int64_t rows,
                             std::int64_t cols) {
  auto* const data = frame.take<std::byte>(static_cast<std::int64_t>(bytes_of(rows, cols, dtype)));
  return {data, dtype, rows, cols, cols};
}

}  // namespace switchback::linear
