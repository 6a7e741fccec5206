// SPDX-License-Identifier: Apache-2.0
// Tuner: the operations whose configurations can be checked and timed in a trial, and the trial of
// any problem. To add an operation, add a line in operations.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "measure/trial.hpp"
#include "switchback/context.hpp"

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

using measure::Trial;
using measure::TrialOptions;

/// The purpose of a trial.
enum class Purpose {
  timing,  ///< to time and check configurations
  checks,  ///< to check only: without the copies of operands between which timed calls alternate
};

/// Makes the trial of a query in this Context, whose device, instruction set and thread count must
/// match the query. Allocates the operands. Throws Error(invalid_argument) for an invalid query or
/// for a query of another Context, and Error(out_of_memory).
std::unique_ptr<Trial> make_trial(Context& context, const ConfigQuery& query,
                                  Purpose purpose = Purpose::timing);

/// Throws Error(invalid_argument), because the words of this query are not a valid problem of its
/// operation.
[[noreturn]] void fail_no_problem(const ConfigQuery& query);

/// Whether a problem belongs to this Context: to its device, instruction set and thread count.
bool matches(const ConfigQuery& query, const ContextState& state) noexcept;

/// An estimate of the bytes that a problem's operands and results need. Allocates nothing.
double trial_bytes(const ConfigQuery& query) noexcept;
/// A message if the operands do not fit into the free memory of the Context's device: "it needs 3.2
/// GB of memory, and 1.1 GB are free". Empty if they fit.
std::string too_large(const ConfigQuery& query, const ContextState& state);
/// A rough estimate of how long a problem takes compared with other problems, used to divide a time
/// budget.
double trial_cost(const ConfigQuery& query) noexcept;

}  // namespace switchback::autotune
