// SPDX-License-Identifier: Apache-2.0
// Bench: what a run tells the person who waits: a line a case on stderr, and on a terminal a status
// line that is redrawn.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cli/status_line.hpp"
#include "bench/run/case.hpp"

namespace switchback::bench {

class Progress {
 public:
  /// Nothing is printed when quiet, except warnings.
  Progress(std::int64_t total, bool quiet);

  void begin(std::int64_t number, const Case& c, double left_s);
  void done(std::int64_t number, const CaseResult& result, double left_s);
  /// A case that was not measured.
  void skipped(std::int64_t number, const Case& c, const std::string& why);
  void note(const std::string& text);
  void warning(const std::string& text);

 private:
  std::int64_t total_;
  bool quiet_;
  StatusLine out_;
};

}  // namespace switchback::bench
