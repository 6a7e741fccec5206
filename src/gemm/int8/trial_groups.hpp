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

/// So many groups of so many slots in all. Strided groups are full; of packed ones every other has
/// three times the rows of its neighbours, since those that measure alike are what is rare.
class TrialGroups {
 public:
  TrialGroups() = default;
  TrialGroups(Context& context, std::int64_t count, std::int64_t slots, bool strided);

  [[nodiscard]] std::int64_t slots() const noexcept { return slots_; }
  [[nodiscard]] Groups view() const noexcept;
  /// The same for the host.
  [[nodiscard]] std::span<const GroupRows> rows() const noexcept { return rows_; }

 private:
  std::int64_t slots_ = 0;
  bool strided_ = false;
  std::vector<GroupRows> rows_;
  measure::Matrix ends_;
};

}  // namespace switchback::gemm_int8
