// SPDX-License-Identifier: Apache-2.0
// Tuner: measures one problem and returns the result as an entry. Validates the GPU kernels that
// need validation on this machine, with small problems, before a program tunes its problems.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autotune/entry/key.hpp"
#include "autotune/search.hpp"
#include "autotune/store/entry.hpp"
#include "autotune/validation/validation.hpp"
#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "switchback/context.hpp"

namespace switchback {
struct TunerState;
}

namespace switchback::autotune {

struct TuneOutcome {
  SearchResult search;
  ConfigChoice choice;  ///< the fastest configuration; for a layer's pass, the ranking of modes
  /// What the cache stores: the winner, every candidate that gave wrong results, and every
  /// candidate that may crash elsewhere and was right here.
  Entry entry;
};

/// Measures one problem on this Context; on a device, with the device's clock. Throws what search()
/// and make_trial() throw.
TuneOutcome tune_problem(Context& context, const ConfigQuery& query, const Machine& machine,
                         const Policy& policy, SearchOptions options);

/// Whether a problem has no elements, so that there is nothing to measure.
bool is_empty(const ConfigQuery& query) noexcept;

/// The current time in UTC, for example "2026-11-21T17:36:23Z".
std::string time_now();

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
