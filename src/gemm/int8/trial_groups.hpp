// SPDX-License-Identifier: Apache-2.0
// Trial zone: the groups of a trial, in the memory of its Context's device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gemm/int8/problem.hpp"
#include "measure/matrix.hpp"
#include "switchback/context.hpp"
#include "switchback/groups.hpp"

namespace switchback::gemm_int8 {

/// Groups with the given number of slots in total. Strided groups are full. Of packed groups, every
/// other one has three times the rows of its neighbours, since groups of equal size are rare.
class TrialGroups {
 public:
  TrialGroups() = default;
  TrialGroups(Context& context, std::int64_t count, std::int64_t slots, bool strided);

  [[nodiscard]] std::int64_t slots() const noexcept { return slots_; }
  [[nodiscard]] Groups view() const noexcept;
  /// The rows of each group, in the host's memory.
  [[nodiscard]] std::span<const GroupRows> rows() const noexcept { return rows_; }

 private:
  std::int64_t slots_ = 0;
  bool strided_ = false;
  std::vector<GroupRows> rows_;
  measure::Matrix ends_;
};

}  // namespace switchback::gemm_int8
