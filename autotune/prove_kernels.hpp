// SPDX-License-Identifier: Apache-2.0
// Tuner: proves the kernels of a device that need it, by small problems, before any problem of a
// program is tuned.
#pragma once

#include <functional>
#include <vector>

#include "autotune/proof/proof.hpp"
#include "autotune/tuner_state.hpp"
#include "core/tunable.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

/// A kernel, one of the problems and configurations that run it, and what came of it.
struct KernelProof {
  core::RiskyKernel kernel;
  ConfigQuery query;
  ConfigChoice choice;
  Proof proof;
};

using ProveCandidate = std::function<Proof(const ConfigQuery&, const ConfigChoice&)>;

/// Proves every kernel of the Context's device that may not run by default: none that is trusted
/// there, or was proven before. The outcomes are in the tuner's cache afterwards.
std::vector<KernelProof> prove_kernels(TunerState& tuner, Context& context,
                                       const ProveCandidate& prove);

}  // namespace switchback::autotune
