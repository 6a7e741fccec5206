// SPDX-License-Identifier: Apache-2.0
#include "autotune/trials.hpp"

#include <fmt/format.h>

#include "autotune/entry/key.hpp"
#include "autotune/operations.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/cpu/memory.hpp"
#include "core/device.hpp"

namespace switchback::autotune {

void fail_no_problem(const ConfigQuery& query) {
  core::fail(Status::invalid_argument, "tune: the query of op {} is not a valid problem",
             static_cast<std::int64_t>(query.op));
}

bool matches(const ConfigQuery& query, const ContextState& state) noexcept {
  const ConfigOrigin& origin = query.origin;
  if (origin.device != state.device.kind) return false;
  if (!state.on_cpu()) return true;
  return origin.threads == state.threads.count() &&
         (!tunable_of(query.op).depends_on_isa || origin.isa == state.features.level());
}

std::unique_ptr<Trial> make_trial(Context& context, const ConfigQuery& query, Purpose purpose) {
  core::require(matches(query, context.state()),
                "tune: {} is for another device, number of threads or instruction set than this "
                "Context ({}, {} threads, {})",
                query, context.state().device, context.threads(), context.isa());
  TrialOptions options;
  options.takes_turns = purpose == Purpose::timing;
  // With a GPU, the reference computes more: the host has many cores, and GPU kernels need more
  // validation.
  if (!context.state().on_cpu()) options.most_reference_work = 0x1p26;
  for (const Operation& operation : operations())
    if (operation.tunable->op == query.op) return operation.make_trial(context, query, options);
  fail_no_problem(query);
}

double trial_bytes(const ConfigQuery& query) noexcept {
  // 12 bytes an element: a float of 4 bytes, copies of the results, and what engines allocate.
  const core::ProblemSize size = tunable_of(query.op).size(query);
  return size.elements * 12 * size.copies;
}

std::string too_large(const ConfigQuery& query, const ContextState& state) {
  const std::size_t free =
      state.runtime != nullptr ? state.runtime->free_bytes() : core::available_memory_bytes();
  // If the system does not report its free memory, an allocation that does not fit will fail.
  if (free == 0 || trial_bytes(query) <= static_cast<double>(free)) return {};
  return fmt::format("it needs {:.1f} GB of memory, and {:.1f} GB are free",
                     trial_bytes(query) * 1e-9, static_cast<double>(free) * 1e-9);
}

double trial_cost(const ConfigQuery& query) noexcept {
  const core::ProblemSize size = tunable_of(query.op).size(query);
  // The cost in operations. Memory traffic per element costs as much as tens of operations of a
  // core. Allocating operands and validating candidates has a cost that does not depend on the
  // size.
  return (size.operations + 64 * size.elements) * size.importance + 2e8;
}

}  // namespace switchback::autotune
