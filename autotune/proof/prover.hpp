// SPDX-License-Identifier: Apache-2.0
// Tuner: proving candidates that may crash or hang in a process of their own, so that this costs
// the candidate and nothing else. One child proves one candidate after another, and is started anew
// behind one that ended it.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autotune/entry/key.hpp"
#include "autotune/proof/child.hpp"
#include "autotune/proof/proof.hpp"
#include "core/config_source.hpp"

namespace switchback::autotune {

struct ProverOptions {
  /// The program and its first arguments; empty: `why_none` says why there is none.
  std::vector<std::string> command = {};
  std::string why_none = {};
  double start_limit_s = 60;  ///< to start and to make a Context
  double limit_s = 30;        ///< for one candidate, the operands of its problem included
};

class Prover {
 public:
  /// For candidates of this Context's device.
  Prover(const ContextState& state, ProverOptions options);

  /// Proves a candidate of a problem in the child within this time, and the limits of the options.
  /// Never throws but for lack of memory.
  Proof prove(const ConfigQuery& query, const ConfigChoice& choice, double limit_s = 1e9);

  /// How many processes were started so far.
  [[nodiscard]] int starts() const noexcept { return starts_; }

 private:
  /// Starts the child if there is none; says why that failed.
  std::string ensure(double limit_s);
  std::string failed_start(std::string_view how);

  ProverOptions options_;
  Machine machine_;
  std::string context_line_;
  Child child_;
  std::string broken_;  ///< why the child never answers; it is not tried again
  int starts_ = 0;
  std::mutex mutex_;
};

}  // namespace switchback::autotune
