// SPDX-License-Identifier: Apache-2.0
// Core: a view of some consecutive rows of a matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback::core {

/// A view of rows [begin, begin + rows) of m; m itself if its data pointer is null.
inline AnyMatrix rows_of(AnyMatrix m, std::int64_t begin, std::int64_t rows) noexcept {
  if (m.data == nullptr) return m;
  m.data = static_cast<std::byte*>(m.data) +
           begin * m.stride * static_cast<std::int64_t>(dtype_size_bytes(m.dtype));
  m.rows = rows;
  return m;
}
inline ConstAnyMatrix rows_of(ConstAnyMatrix m, std::int64_t begin, std::int64_t rows) noexcept {
  return rows_of(AnyMatrix(const_cast<void*>(m.data), m.dtype, m.rows, m.cols, m.stride), begin,
                 rows);
}

}  // namespace switchback::core
