// SPDX-License-Identifier: Apache-2.0
// Bench: proving a risky candidate in a process of its own, so that a crash or a hang costs that
// candidate and nothing else.
#pragma once

#include <string>
#include <vector>

#include "autotune/entry/key.hpp"
#include "core/config_source.hpp"
#include "switchback/context.hpp"

namespace switchback::bench {

/// How a child process ended, in words; empty if with 0 and `output` holds what it printed.
struct ChildResult {
  int exit_code = -1;  ///< -1: it did not exit by itself
  std::string how;     ///< "crashed with signal 11 (Segmentation fault)", "took longer than 20 s"
  std::string output;  ///< of its standard output, the first 4 KiB
};
/// Runs a program to its end, killing it after `limit_s`.
ChildResult run_child(const std::vector<std::string>& arguments, double limit_s);

class Prober {
 public:
  /// `program` is run with "tune-probe" and a line that says what to prove; empty: this program.
  explicit Prober(const ContextOptions& context, std::string program = {}, double limit_s = 30);

  /// Why a candidate must not run in this process; empty if it ran and was right in another.
  [[nodiscard]] std::string why_not(const ConfigQuery& query, const ConfigChoice& choice) const;

 private:
  ContextOptions context_;
  std::string program_;
  double limit_s_;
  autotune::Machine machine_;
};

/// The other side: proves what a line says and prints why it is wrong. Returns an exit code.
int probe_command(const ContextOptions& context, const std::string& line);

}  // namespace switchback::bench
