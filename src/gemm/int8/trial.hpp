// SPDX-License-Identifier: Apache-2.0
// Trial zone: single and grouped int8 products on random codes. Sums are compared exactly, and
// outputs bit for bit.
#pragma once

#include <memory>
#include <vector>

#include "gemm/int8/problem.hpp"
#include "measure/trial.hpp"

namespace switchback::gemm_int8 {

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
