// SPDX-License-Identifier: Apache-2.0
// Tuner: one problem with operands of its own, on which configurations are proven and timed. The
// search knows nothing else of what it tunes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/config_source.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

class Task {
 public:
  virtual ~Task() = default;

  /// Every configuration worth trying; the first is the one that runs when nothing is known.
  [[nodiscard]] virtual std::vector<ConfigChoice> candidates() = 0;

  /// Runs a configuration on random data and says what is wrong with its results; empty if they are
  /// right. Integers and codes are compared exactly. The first call must be for the default, which
  /// is checked against the reference; the others against both. Throws Error if it cannot run.
  [[nodiscard]] virtual std::string check(const ConfigChoice& choice) = 0;

  /// Runs a configuration that passed, as an ordinary call would. What the timing times.
  virtual void run(const ConfigChoice& choice) = 0;

  /// Memory it takes besides the operands: of two equally fast ones the smaller wins.
  [[nodiscard]] virtual std::int64_t scratch_bytes(const ConfigChoice&) { return 0; }

  /// By how much a candidate must be faster than the default to replace it. The same configuration
  /// on operands that were allocated anew is 3 to 4 % faster or slower, by where its pages lie:
  /// less than that is a property of one run. (Ten tunes of 26 problems agreed on 93 % of winners
  /// at 2 %.)
  [[nodiscard]] virtual double least_gain() const { return 0.04; }

  /// Whether it may take the process down (an algorithm that the library did not offer itself).
  [[nodiscard]] virtual bool is_risky(const ConfigChoice&) { return false; }

  /// A library's own form of a configuration, to be kept beside its words; mostly empty.
  [[nodiscard]] virtual std::string provenance(const ConfigChoice&) { return {}; }
};

/// The task of a query in this Context, which must be of the device and the instruction set that
/// the query names; the thread count too. Takes the operands' memory. Throws
/// Error(invalid_argument) for a query that is none or of another Context, Error(out_of_memory).
std::unique_ptr<Task> make_task(Context& context, const ConfigQuery& query);

/// Throws Error(invalid_argument): a query is no problem of its operation.
[[noreturn]] void fail_no_problem(const ConfigQuery& query);

/// Whether a problem is one of this Context: of its device, instruction set and thread count.
bool matches(const ConfigQuery& query, const ContextState& state) noexcept;

/// Bytes of its operands and results, before they are taken.
double task_bytes(const ConfigQuery& query) noexcept;
/// "it takes 3.2 GB, and there are 1.1 GB", where its operands do not fit into what is free of the
/// Context's memory; else empty.
std::string too_large(const ConfigQuery& query, const ContextState& state);
/// How long it takes relative to others, roughly: what a budget is shared out by.
double task_cost(const ConfigQuery& query) noexcept;

}  // namespace switchback::autotune
