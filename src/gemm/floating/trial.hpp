// SPDX-License-Identifier: Apache-2.0
// Trial zone: floating point products on random operands, compared with sums in f64.
#pragma once

#include <memory>
#include <vector>

#include "gemm/floating/problem.hpp"
#include "measure/trial.hpp"

namespace switchback::floating {

std::unique_ptr<measure::Trial> make_trial(Context& context, const Problem& problem,
                                           const measure::TrialOptions& options);

/// The products of a layer of this type: forward, dX and dW, also with f32 results.
std::vector<Problem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                    DType dtype);

}  // namespace switchback::floating
