// SPDX-License-Identifier: Apache-2.0
// Trial zone: blockwise int8 products on random codes. Every engine stores the bits of the
// specification, so that results are compared bit for bit.
#pragma once

#include <memory>
#include <vector>

#include "gemm/blockwise/problem.hpp"
#include "measure/trial.hpp"

namespace switchback::blockwise {

std::unique_ptr<measure::Trial> make_trial(Context& context, const BlockwiseProblem& problem,
                                           const measure::TrialOptions& options);

/// The products that compute dW of a layer of this type: one stores dW, the other adds to it.
std::vector<BlockwiseProblem> trial_problems(const ContextState& state,
                                             const measure::TrialShape& shape, DType dtype);

}  // namespace switchback::blockwise
