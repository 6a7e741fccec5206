// SPDX-License-Identifier: Apache-2.0
// Tuner: a task is one problem with its operands, on which configurations are proven and timed. The
// search knows nothing else about what it tunes.
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

  /// Every configuration worth trying; the first is the default.
  [[nodiscard]] virtual std::vector<ConfigChoice> candidates() = 0;
  /// The same and every other one that there is, for a thorough search.
  [[nodiscard]] virtual std::vector<ConfigChoice> all_candidates() { return candidates(); }

  /// Runs a configuration on random data and says what is wrong with its results; empty if they are
  /// right. Integers and codes are compared exactly. The first call must be for the default, which
  /// is checked against the reference; the others against both. Throws Error if it cannot run.
  [[nodiscard]] virtual std::string check(const ConfigChoice& choice) = 0;

  /// Runs a configuration that passed, as an ordinary call would. This is what is timed.
  virtual void run(const ConfigChoice& choice) = 0;

  /// Scratch memory of a configuration: of two equally fast ones the one with less wins.
  [[nodiscard]] virtual std::int64_t scratch_bytes(const ConfigChoice&) { return 0; }

  /// By how much a candidate must be faster than the default to replace it. On newly allocated
  /// operands the same configuration is up to 3 to 4 % faster or slower, depending on its pages, so
  /// a smaller difference says nothing. (Ten tunes of 26 problems agreed on 93 % of winners at 2
  /// %.)
  [[nodiscard]] virtual double least_gain() const { return 0.04; }

  /// Whether a configuration may crash the process (such as an algorithm that the library did not
  /// rank).
  [[nodiscard]] virtual bool is_risky(const ConfigChoice&) { return false; }

  /// A library's own form of a configuration, to be stored with it; usually empty.
  [[nodiscard]] virtual std::string provenance(const ConfigChoice&) { return {}; }
};

/// What a task is made for.
enum class Purpose {
  timing,  ///< proofs too
  /// Proofs alone: without the operands elsewhere in memory that timed calls take in turns.
  proof
};

/// Makes the task of a query in this Context, whose device, instruction set and thread count must
/// be those of the query. Allocates the operands. Throws Error(invalid_argument) for an invalid
/// query or one of another Context, and Error(out_of_memory).
std::unique_ptr<Task> make_task(Context& context, const ConfigQuery& query,
                                Purpose purpose = Purpose::timing);

/// Throws Error(invalid_argument): a query is no problem of its operation.
[[noreturn]] void fail_no_problem(const ConfigQuery& query);

/// Whether a problem belongs to this Context: to its device, instruction set and thread count.
bool matches(const ConfigQuery& query, const ContextState& state) noexcept;

/// Bytes of a problem's operands and results, without allocating them.
double task_bytes(const ConfigQuery& query) noexcept;
/// "it takes 3.2 GB, and there are 1.1 GB", if the operands do not fit into the free memory of the
/// Context's device; else empty.
std::string too_large(const ConfigQuery& query, const ContextState& state);
/// A rough estimate of how long a problem takes relative to others, to divide a budget.
double task_cost(const ConfigQuery& query) noexcept;

}  // namespace switchback::autotune
