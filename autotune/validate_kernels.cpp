// SPDX-License-Identifier: Apache-2.0
#include "autotune/validate_kernels.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/trials.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

namespace {

// The cache entry of a validation. It has no winner, because nothing was timed.
Entry entry_of(const KernelValidation& one, const TunerState& tuner) {
  Entry entry;
  entry.key = key_of(one.query, tuner.machine, tuner.policy);
  entry.env = tuner.environment;
  const bool right = one.validation.result == Validation::Result::right;
  entry.validated.push_back(
      {to_text(one.query.op, one.choice), right ? std::string() : one.validation.why, time_now()});
  return entry;
}

}  // namespace

std::vector<KernelValidation> validate_kernels(TunerState& tuner, Context& context,
                                               const ValidateCandidate& validate) {
  std::vector<KernelValidation> all;
  if (context.state().on_cpu()) return all;
  const auto is_known = [&](const ConfigQuery& query, const KernelValidation& one) {
    return tuner.is_validated(query, one.choice) ||
           std::any_of(all.begin(), all.end(), [&](const KernelValidation& other) {
             return other.query.op == query.op && other.kernel == one.kernel;
           });
  };
  for (const Operation& operation : operations()) {
    const core::Tunable& tunable = *operation.tunable;
    if (tunable.kernel_problems == nullptr) continue;
    for (const ConfigQuery& query : tunable.kernel_problems(context.state())) {
      const std::unique_ptr<Trial> trial = make_trial(context, query, Purpose::checks);
      for (const ConfigChoice& choice : trial->candidates()) {
        KernelValidation one = {{}, query, choice, {}};
        if (!tunable.kernel_of(query, choice, one.kernel) || !trial->needs_validation(choice) ||
            is_known(query, one))
          continue;
        one.validation = validate(query, choice);
        if (one.validation.result != Validation::Result::unvalidated)
          tuner.add({entry_of(one, tuner)});
        all.push_back(std::move(one));
      }
    }
  }
  return all;
}

}  // namespace switchback::autotune
