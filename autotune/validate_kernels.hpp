// SPDX-License-Identifier: Apache-2.0
// Tuner: validates the GPU kernels that need validation on this machine, with small problems,
// before a program tunes its problems.
#pragma once

#include <functional>
#include <vector>

#include "autotune/tuner_state.hpp"
#include "autotune/validation/validation.hpp"
#include "core/tunable.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

/// The validation of a kernel: the problem and the configuration that ran it, and the result.
struct KernelValidation {
  core::KernelId kernel;
  ConfigQuery query;
  ConfigChoice choice;
  Validation validation;
};

using ValidateCandidate = std::function<Validation(const ConfigQuery&, const ConfigChoice&)>;

/// Validates every kernel of the Context's device that may not run by default. Kernels that are
/// trusted there or were validated before are skipped. The results are then in the tuner's cache.
std::vector<KernelValidation> validate_kernels(TunerState& tuner, Context& context,
                                               const ValidateCandidate& validate);

}  // namespace switchback::autotune
