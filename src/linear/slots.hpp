// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the groups that the rows of a layer's call belong to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "switchback/groups.hpp"

namespace switchback::linear {

/// How the rows of groups are laid out. The values never change, because they are part of tuning
/// records.
enum class RowsLayout : std::int64_t {
  packed = 0,
  strided = 1,
  gathered = 2,  ///< by an index, for groups of either kind
  columns = 3,   ///< strided groups next to each other: GroupedRows::column_stride
};

/// The slots of a call, and which row of x each of them reads. Rows of y, g and dx are slots.
struct Slots {
  Groups groups = {};
  std::int64_t count = 0;                    ///< M
  std::span<const std::int32_t> index = {};  ///< as in GroupedRows
  std::int64_t column_stride = 0;            ///< as in GroupedRows

  [[nodiscard]] GroupedRows rows(ConstAnyMatrix x) const noexcept {
    return {x, index, column_stride};
  }
  [[nodiscard]] RowsLayout layout() const noexcept {
    if (!index.empty()) return RowsLayout::gathered;
    if (column_stride > 0) return RowsLayout::columns;
    return groups.ends.empty() ? RowsLayout::strided : RowsLayout::packed;
  }
};

/// Null if there are none.
inline const Slots* pointer_to(const std::optional<Slots>& slots) noexcept {
  return slots ? &*slots : nullptr;
}
/// The same slots, for a matrix whose rows are the slots.
inline std::optional<Slots> without_index(const Slots* slots) noexcept {
  if (slots == nullptr) return std::nullopt;
  return Slots{slots->groups, slots->count, {}, 0};
}

}  // namespace switchback::linear
