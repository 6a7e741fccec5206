// SPDX-License-Identifier: Apache-2.0
// Test support: groups of every kind, and the slots of each group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/device.hpp"
#include "support/matrix.hpp"
#include "switchback/groups.hpp"

namespace switchback::test {

/// A description of groups that owns its arrays, and the slots of each group.
struct SomeGroups {
  std::string name;
  std::int64_t slots = 0;
  std::int64_t rows = 0;      ///< rows of each strided group; 0: packed
  Vector<std::int32_t> ends;  ///< end of each packed group
  Vector<std::int32_t> used;  ///< rows that each strided group uses; empty: all
  std::vector<std::int64_t> begins, counts;

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(counts.size()); }
  [[nodiscard]] Groups view() const {
    if (rows == 0) return Groups::packed({ends.data(), ends.size()});
    return Groups::strided(count(), rows, {used.data(), used.size()});
  }
  /// Whether the slot belongs to a group.
  [[nodiscard]] bool has(std::int64_t slot) const {
    for (std::size_t g = 0; g < counts.size(); ++g)
      if (slot >= begins[g] && slot < begins[g] + counts[g]) return true;
    return false;
  }
};

/// Packed groups of these sizes, followed by `behind` slots that belong to no group.
inline SomeGroups packed_groups(const std::vector<std::int64_t>& sizes, std::int64_t behind = 0) {
  SomeGroups groups;
  groups.name = "packed";
  groups.ends = Vector<std::int32_t>(sizes.size());
  std::int64_t end = 0;
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    groups.name += " " + std::to_string(sizes[g]);
    groups.begins.push_back(end);
    groups.counts.push_back(sizes[g]);
    end += sizes[g];
    groups.ends[g] = static_cast<std::int32_t>(end);
  }
  groups.slots = end + behind;
  return groups;
}

/// `count` strided groups of `rows` rows. `used` says how many rows each group uses; empty: all.
inline SomeGroups strided_groups(std::int64_t rows, std::int64_t count,
                                 const std::vector<std::int64_t>& used = {}) {
  SomeGroups groups;
  groups.name = "strided " + std::to_string(rows) + " ·" + std::to_string(count);
  groups.rows = rows;
  groups.slots = rows * count;
  groups.used = Vector<std::int32_t>(used.size());
  for (std::int64_t g = 0; g < count; ++g) {
    groups.begins.push_back(g * rows);
    const std::int64_t here = used.empty() ? rows : used[static_cast<std::size_t>(g)];
    groups.counts.push_back(here);
    if (!used.empty()) {
      groups.used[static_cast<std::size_t>(g)] = static_cast<std::int32_t>(here);
      groups.name += " " + std::to_string(here);
    }
  }
  return groups;
}

/// Groups of many kinds: empty ones first, last and in the middle, with one row, with one row more
/// and less than a tile of 6, with several blocks, and many small ones.
inline std::vector<SomeGroups> all_groups() {
  std::vector<SomeGroups> all;
  all.push_back(packed_groups({3}));
  all.push_back(packed_groups({0, 1, 0, 5, 6, 7, 0}, 3));
  all.push_back(packed_groups({200, 1, 13, 0, 25}));
  all.push_back(packed_groups({0, 0, 0}, 4));
  all.push_back(packed_groups({1, 2, 1, 0, 1, 3, 1, 1, 0, 0, 2, 1, 12, 1, 1, 24, 2}));
  all.push_back(strided_groups(7, 5));
  all.push_back(strided_groups(8, 4, {8, 0, 3, 1}));
  return all;
}

}  // namespace switchback::test
