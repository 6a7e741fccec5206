// SPDX-License-Identifier: Apache-2.0
// Tuner: the operations that have a trial. To add one, add a line in operations.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tunable.hpp"
#include "measure/trial.hpp"

namespace switchback::autotune {

/// A problem for which a trial can be made. The tuner may or may not tune it.
struct TrialProblem {
  std::string text;
  std::function<std::unique_ptr<measure::Trial>(Context&, const measure::TrialOptions&)> make_trial;
};

struct Operation {
  const core::Tunable* tunable;
  /// Throws Error(invalid_argument) if the query does not describe a problem of the operation.
  std::unique_ptr<measure::Trial> (*make_trial)(Context& context, const ConfigQuery& query,
                                                const measure::TrialOptions& options);
  /// The problems that an operation can compute on the matrices of a layer of this type, each once.
  /// Null: checks do not use them.
  std::vector<TrialProblem> (*problems)(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype);
  /// The kinds of data that the operation's result depends on.
  std::span<const measure::Data> data;
};
std::span<const Operation> operations() noexcept;

/// If no operation has this value: a table without words, for which no query is a valid problem.
const core::Tunable& tunable_of(ConfigOp op) noexcept;
/// By name; null if there is no such operation.
const core::Tunable* find_tunable(std::string_view name) noexcept;

}  // namespace switchback::autotune
