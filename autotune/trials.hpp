// SPDX-License-Identifier: Apache-2.0
// Tuner: makes the trial of any problem (its operands, on which configurations are checked and
// timed), and estimates its memory and time.
#pragma once

#include <memory>
#include <string>

#include "core/config_source.hpp"
#include "measure/trial.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

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
