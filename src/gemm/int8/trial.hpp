// SPDX-License-Identifier: Apache-2.0
// Trial zone: single and grouped int8 products on random codes. Sums are compared exactly, and
// outputs bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gemm/int8/problem.hpp"
#include "measure/matrix.hpp"
#include "measure/trial.hpp"
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

std::unique_ptr<measure::Trial> make_trial(Context& context, const GemmProblem& problem,
                                           const measure::TrialOptions& options);

/// Forward products of a layer with outputs of this type: every kind of scales and bias, with
/// packed and unpacked weights.
std::vector<GemmProblem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype);
/// As trial_problems(), for four groups in every layout.
std::vector<GemmProblem> grouped_trial_problems(const ContextState& state,
                                                const measure::TrialShape& shape, DType dtype);

/// The first wrong row of sums[m,n] = a[m,k] · b[n,k]ᵀ, or -1 if all rows are right. It costs about
/// as much as reading the matrices, which must be in the host's memory.
std::int64_t first_wrong_row(MatrixView<const std::int8_t> a, MatrixView<const std::int8_t> b,
                             MatrixView<const std::int32_t> sums);

}  // namespace switchback::gemm_int8
