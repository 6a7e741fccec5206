// SPDX-License-Identifier: Apache-2.0
#include "autotune/operations.hpp"

#include <array>

#include "autotune/tasks/tasks.hpp"
#include "core/check.hpp"

namespace switchback::autotune {

namespace {

template <class Problem, auto Make>
std::unique_ptr<Task> make(Context& context, const ConfigQuery& query, Purpose purpose) {
  Problem problem;
  if (!from_query(query, problem)) fail_no_problem(query);
  return Make(context, problem, purpose);
}

constexpr std::array all = {
    Operation{&quant::tunable, make<quant::Problem, make_quantize_task>},
    Operation{&gemm_int8::tunable, make<gemm_int8::GemmProblem, make_int8_task>},
    Operation{&floating::tunable, make<floating::Problem, make_floating_task>},
    Operation{&linear::tunable, make<linear::PassProblem, make_layer_task>},
    Operation{&gemm_int8::grouped_tunable, make<gemm_int8::GroupedProblem, make_grouped_int8_task>},
    Operation{&linear::grouped_tunable, make<linear::GroupedPassProblem, make_grouped_layer_task>},
    Operation{&blockwise::tunable, make<blockwise::BlockwiseProblem, make_blockwise_task>},
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
