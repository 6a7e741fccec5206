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
  gathered = 2,  ///< rows are read by an index, for packed or strided groups
  columns = 3,   ///< strided groups side by side in the columns of x (GroupedRows::column_stride)
};

/// The slots of a call, and which row of x each of them reads. Rows of y, g and dx are slots.
struct Slots {
  Groups groups = {};
  std::int64_t count = 0;                    ///< M
  std::span<const std::int32_t> index = {};  ///< the row of x of each slot: GroupedRows::index
  std::int64_t column_stride = 0;  ///< columns of x from one group to the next (GroupedRows)

  [[nodiscard]] GroupedRows rows(ConstAnyMatrix x) const noexcept {
    return {x, index, column_stride};
  }
  [[nodiscard]] RowsLayout layout() const noexcept {
    if (!index.empty()) return RowsLayout::gathered;
    if (column_stride > 0) return RowsLayout::columns;
    return groups.ends.empty() ? RowsLayout::strided : RowsLayout::packed;
  }
};

/// Returns a pointer to the slots, or null if the optional is empty.
inline const Slots* pointer_to(const std::optional<Slots>& slots) noexcept {
  return slots ? &*slots : nullptr;
}
/// The same groups, for a matrix that has one row per slot: slot s reads row s.
inline std::optional<Slots> without_index(const Slots* slots) noexcept {
  if (slots == nullptr) return std::nullopt;
  return Slots{slots->groups, slots->count, {}, 0};
}

}  // namespace switchback::linear
