// SPDX-License-Identifier: Apache-2.0
// Trial zone: for the tuner, a pass of a layer, a pass of a layer with groups, or a whole step,
// from floats to floats, in each of the modes that mode auto chooses from.
#pragma once

#include <memory>

#include "linear/mode.hpp"
#include "measure/trial.hpp"

namespace switchback::linear {

std::unique_ptr<measure::Trial> make_trial(Context& context, const PassProblem& problem,
                                           const measure::TrialOptions& options);
std::unique_ptr<measure::Trial> make_trial(Context& context, const GroupedPassProblem& problem,
                                           const measure::TrialOptions& options);

}  // namespace switchback::linear
