// SPDX-License-Identifier: Apache-2.0
#include "autotune/prove_kernels.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/task.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

namespace {

// A sample without times: the kernel was right, and nothing was measured.
Record record_of(const KernelProof& proven, const TunerState& tuner) {
  Record record;
  const bool right = proven.proof.result == Proof::Result::right;
  record.type = right ? RecordType::sample : RecordType::fail;
  record.ok = right;
  record.why = proven.proof.why;
  record.key = key_of(proven.query, tuner.machine, tuner.policy);
  record.env = tuner.environment;
  record.candidate = to_text(proven.query.op, proven.choice);
  record.effort = Effort::cut;
  record.time = time_now();
  return record;
}

}  // namespace

std::vector<KernelProof> prove_kernels(TunerState& tuner, Context& context,
                                       const ProveCandidate& prove) {
  std::vector<KernelProof> all;
  if (context.state().on_cpu()) return all;
  const auto is_known = [&](const ConfigQuery& query, const KernelProof& one) {
    return tuner.is_proven(query, one.choice) ||
           std::any_of(all.begin(), all.end(), [&](const KernelProof& other) {
             return other.query.op == query.op && other.kernel == one.kernel;
           });
  };
  for (const Operation& operation : operations()) {
    const core::Tunable& tunable = *operation.tunable;
    if (tunable.kernel_problems == nullptr) continue;
    for (const ConfigQuery& query : tunable.kernel_problems(context.state())) {
      const std::unique_ptr<Task> task = make_trial(context, query, Purpose::checks);
      for (const ConfigChoice& choice : task->candidates()) {
        KernelProof one = {{}, query, choice, {}};
        if (!tunable.kernel_of(query, choice, one.kernel) || !task->is_risky(choice) ||
            is_known(query, one))
          continue;
        one.proof = prove(query, choice);
        if (one.proof.result != Proof::Result::unproven) tuner.add({record_of(one, tuner)});
        all.push_back(std::move(one));
      }
    }
  }
  return all;
}

}  // namespace switchback::autotune
