// SPDX-License-Identifier: Apache-2.0
// Tuner: the operations that have a trial. A new one is one line in operations.cpp.
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

/// A problem, tuned or not, of which a trial can be made.
struct TrialProblem {
  std::string text;
  std::function<std::unique_ptr<measure::Trial>(Context&, const measure::TrialOptions&)> make_trial;
};

struct Operation {
  const core::Tunable* tunable;
  /// Throws Error(invalid_argument) for a query that is no problem.
  std::unique_ptr<measure::Trial> (*make_trial)(Context& context, const ConfigQuery& query,
                                                const measure::TrialOptions& options);
  /// On the matrices of a layer of this type: what an operation can compute of them, once each.
  /// Null: no check goes through them.
  std::vector<TrialProblem> (*problems)(const ContextState& state, const measure::TrialShape& shape,
                                        DType dtype);
  /// The kinds of data that make a difference to it.
  std::span<const measure::Data> data;
};
std::span<const Operation> operations() noexcept;

/// Of an operation that is none: one without words, whose every query is no problem.
const core::Tunable& tunable_of(ConfigOp op) noexcept;
/// By name; null if there is none.
const core::Tunable* find_tunable(std::string_view name) noexcept;

}  // namespace switchback::autotune
