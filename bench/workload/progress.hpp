// SPDX-License-Identifier: Apache-2.0
// Bench: progress of a run on stderr: a line per case, and on a terminal a status line that is
// redrawn.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cli/status_line.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

class Progress {
 public:
  /// When quiet, cases that are ok are not reported.
  Progress(StatusLine& out, std::int64_t total, bool quiet)
      : out_(out), total_(total), quiet_(quiet) {}

  /// `left_s` is 0 if it is not known.
  void begin(std::int64_t number, const std::string& id, double left_s);
  void done(std::int64_t number, const std::string& id, const CaseOutcome& outcome, double left_s);
  /// A case that was not measured.
  void skipped(std::int64_t number, const std::string& id, const std::string& why);

 private:
  [[nodiscard]] std::string heading(std::int64_t number, const std::string& id) const;

  StatusLine& out_;
  std::int64_t total_;
  bool quiet_;
};

}  // namespace switchback::bench
