// SPDX-License-Identifier: Apache-2.0
// Trial zone: int8 products, one or those of groups, on random codes. Sums are compared exactly,
// and outputs bit for bit.
#pragma once

#include <memory>
#include <vector>

#include "gemm/int8/problem.hpp"
#include "measure/trial.hpp"

namespace switchback::gemm_int8 {

std::unique_ptr<measure::Trial> make_trial(Context& context, const GemmProblem& problem,
                                           const measure::TrialOptions& options);

/// Forward of a layer, with every kind of scales and bias, of weights that are packed and that are
/// not, into this type.
std::vector<GemmProblem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype);
/// The same of four groups, in every layout.
std::vector<GemmProblem> grouped_trial_problems(const ContextState& state,
                                                const measure::TrialShape& shape, DType dtype);

/// Of sums[m,n] = a[m,k] · b[n,k]ᵀ the first row that is wrong, -1 if none is, for the price of
/// reading the matrices, which are the host's.
std::int64_t first_wrong_row(MatrixView<const std::int8_t> a, MatrixView<const std::int8_t> b,
                             MatrixView<const std::int32_t> sums);

}  // namespace switchback::gemm_int8
