// SPDX-License-Identifier: Apache-2.0
// Trial zone: for the tuner and for verification, quantize operations on random operands; all
// results are compared with the reference.
#pragma once

#include <memory>
#include <vector>

#include "measure/trial.hpp"
#include "quant/problem.hpp"

namespace switchback::quant {

std::unique_ptr<measure::Trial> make_trial(Context& context, const Problem& problem,
                                           const measure::TrialOptions& options);

/// One problem of each operation, tuned or not, on the matrices of a layer.
std::vector<Problem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                    DType dtype);

}  // namespace switchback::quant
