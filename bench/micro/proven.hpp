// SPDX-License-Identifier: Apache-2.0
// Bench: configurations that take part in a race only if another process has found them right.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/proof/prover.hpp"
#include "bench/workload/session.hpp"

namespace switchback::bench {

/// What was not measured, in words: configurations that were wrong, and others.
struct LeftOut {
  std::vector<std::string> wrong;
  std::vector<std::string> unproven;
};

/// Whether a configuration is right; else `left_out` says of it, by this name, why not.
bool is_right(autotune::Prover& prover, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out);

/// Warns of what the cases of a bench left out.
class LeftOutWarnings {
 public:
  /// Behind the last case it throws Error(device_error) if something of any case was wrong: so the
  /// others are measured first.
  void add(Session& session, const LeftOut& of_case, std::string_view bench, bool is_last);

 private:
  std::size_t wrong_ = 0;
};

}  // namespace switchback::bench
