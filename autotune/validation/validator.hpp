// SPDX-License-Identifier: Apache-2.0
// Tuner: validates candidates that may crash or hang, in a separate process. A crash then costs
// only that candidate. One child validates one candidate after another. If a candidate ends the
// child, a new child is started.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autotune/entry/key.hpp"
#include "autotune/validation/child.hpp"
#include "autotune/validation/validation.hpp"
#include "core/config_source.hpp"

namespace switchback::autotune {

struct ValidatorOptions {
  /// The helper program and its first arguments. If empty, `why_none` says why there is no program.
  std::vector<std::string> command = {};
  std::string why_none = {};
  double start_limit_s = 60;  ///< time to start the child and create its Context
  double limit_s = 30;        ///< time for one candidate and the allocation of its operands
};

class Validator {
 public:
  /// Validates candidates for the device of this Context.
  Validator(const ContextState& state, ValidatorOptions options);

  /// Validates a candidate of a problem in the child, within `limit_s` and the limits of the
  /// options. Throws only if memory runs out.
  Validation validate(const ConfigQuery& query, const ConfigChoice& choice, double limit_s = 1e9);

  /// The number of processes started so far.
  [[nodiscard]] int starts() const noexcept { return starts_; }

 private:
  /// Starts the child if it does not run. Returns why that failed; empty on success.
  std::string ensure(double limit_s);
  std::string failed_start(std::string_view how);

  ValidatorOptions options_;
  Machine machine_;
  std::string context_line_;
  Child child_;
  std::string broken_;  ///< why no child can be started any more; empty if one can
  int starts_ = 0;
  std::mutex mutex_;
};

}  // namespace switchback::autotune
