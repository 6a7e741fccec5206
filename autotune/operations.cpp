// SPDX-License-Identifier: Apache-2.0
#include "autotune/operations.hpp"

#include <fmt/format.h>

#include <array>

#include "autotune/entry/key.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/cpu/resources.hpp"
#include "core/device.hpp"
#include "gemm/blockwise/trial.hpp"
#include "gemm/floating/trial.hpp"
#include "gemm/int8/trial.hpp"
#include "linear/trial.hpp"
#include "quant/trial.hpp"

namespace switchback::autotune {

namespace {

template <class Problem>
std::unique_ptr<measure::Trial> make(Context& context, const ConfigQuery& query,
                                     const measure::TrialOptions& options) {
  Problem problem;
  if (!from_query(query, problem)) fail_no_problem(query);
  return make_trial(context, problem, options);
}

template <auto ListProblems>
std::vector<TrialProblem> problems(const ContextState& state, const measure::TrialShape& shape,
                                   DType dtype) {
  std::vector<TrialProblem> all;
  for (const auto& problem : ListProblems(state, shape, dtype))
    all.push_back(
        {describe(problem), [problem](Context& context, const measure::TrialOptions& options) {
           return make_trial(context, problem, options);
         }});
  return all;
}

using measure::Data;
constexpr std::array of_codes = {Data::normal, Data::outliers, Data::nonfinite};
constexpr std::array of_floats = {Data::normal, Data::outliers, Data::zeros, Data::nonfinite};

constexpr std::array all_operations = {
    Operation{&quant::tunable, make<quant::Problem>, problems<quant::trial_problems>,
              measure::data_kinds},
    Operation{&gemm_int8::tunable, make<gemm_int8::GemmProblem>,
              problems<gemm_int8::trial_problems>, of_codes},
    Operation{&blockwise::tunable, make<blockwise::BlockwiseProblem>,
              problems<blockwise::trial_problems>, of_codes},
    Operation{&floating::tunable, make<floating::Problem>, problems<floating::trial_problems>,
              of_floats},
    Operation{&linear::tunable, make<linear::PassProblem>, nullptr, {}},
    Operation{&gemm_int8::grouped_tunable, make<gemm_int8::GemmProblem>,
              problems<gemm_int8::grouped_trial_problems>, of_codes},
    Operation{&linear::grouped_tunable, make<linear::GroupedPassProblem>, nullptr, {}},
};

constexpr core::Tunable no_operation() {
  core::Tunable none{};
  none.name = "unknown";
  none.describe = [](const ConfigQuery&) { return std::string(); };
  none.size = [](const ConfigQuery&) noexcept { return core::ProblemSize(); };
  none.default_choice = [](const ConfigQuery&, const ContextState&, ConfigChoice&) {
    return false;
  };
  none.refusal = [](const ConfigQuery&, const ConfigChoice&, const ContextState&) {
    return std::string("the operation is unknown");
  };
  return none;
}
constexpr core::Tunable unknown = no_operation();

}  // namespace

std::span<const Operation> operations() noexcept {
  return all_operations;
}

const core::Tunable& tunable_of(ConfigOp op) noexcept {
  for (const Operation& operation : all_operations)
    if (operation.tunable->op == op) return *operation.tunable;
  return unknown;
}

const core::Tunable* find_tunable(std::string_view name) noexcept {
  for (const Operation& operation : all_operations)
    if (operation.tunable->name == name) return operation.tunable;
  return nullptr;
}

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
