// SPDX-License-Identifier: Apache-2.0
#include "autotune/operations.hpp"

#include <array>

#include "autotune/trials.hpp"
#include "core/check.hpp"
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

constexpr std::array all = {
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
  return all;
}

const core::Tunable& tunable_of(ConfigOp op) noexcept {
  for (const Operation& operation : all)
    if (operation.tunable->op == op) return *operation.tunable;
  return unknown;
}

const core::Tunable* find_tunable(std::string_view name) noexcept {
  for (const Operation& operation : all)
    if (operation.tunable->name == name) return operation.tunable;
  return nullptr;
}

}  // namespace switchback::autotune
