// SPDX-License-Identifier: Apache-2.0
// Core: allocates a matrix in scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/workspace.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core {

/// Takes memory from the frame for a matrix without gaps between its rows. An empty matrix gets
/// memory too, because null data means that a matrix is absent.
inline AnyMatrix take_matrix(Workspace::Frame& frame, DType dtype, std::int64_t rows,
                             std::int64_t cols) {
  const auto bytes = rows * cols * static_cast<std::int64_t>(dtype_size_bytes(dtype));
  return {frame.take<std::byte>(std::max<std::int64_t>(bytes, 1)), dtype, rows, cols, cols};
}

}  // namespace switchback::core
