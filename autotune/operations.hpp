// SPDX-License-Identifier: Apache-2.0
// Tuner: the operations whose configurations can be checked and timed in a trial. To add an
// operation, add a line in operations.cpp.
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

/// A problem whose configurations can be checked in a trial, whether the tuner tunes it or not.
struct TrialProblem {
  std::string text;
  std::function<std::unique_ptr<measure::Trial>(Context&, const measure::TrialOptions&)> make_trial;
};

struct Operation {
  const core::Tunable* tunable;
  /// Throws Error(invalid_argument) if the query does not describe a problem of the operation.
  std::unique_ptr<measure::Trial> (*make_trial)(Context& context, const ConfigQuery& query,
                                                const measure::TrialOptions& options);
  /// Lists the problems that the operation can compute on the matrices of a layer of this shape and
  /// dtype, each once. Null: `switchback-bench verify` does not check the operation by itself.
  std::vector<TrialProblem> (*problems)(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype);
  /// The kinds of operand data (normal, outliers, …) with which the operation is to be checked.
  std::span<const measure::Data> data;
};
std::span<const Operation> operations() noexcept;

/// The description of an operation. If no operation has this value, the result is a placeholder for
/// which no query is a valid problem.
const core::Tunable& tunable_of(ConfigOp op) noexcept;
/// The description of the operation with this name; null if there is no such operation.
const core::Tunable* find_tunable(std::string_view name) noexcept;

}  // namespace switchback::autotune
