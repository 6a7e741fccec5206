// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/progress.hpp"

#include <fmt/format.h>

#include "bench/cli/cli.hpp"

namespace switchback::bench {

namespace {

std::string left_text(double left_s) {
  return left_s > 0 ? fmt::format("  about {} left", format_duration(left_s)) : "";
}

}  // namespace

std::string Progress::heading(std::int64_t number, const std::string& id) const {
  return fmt::format("[{}/{}] {}", number, total_, id);
}

void Progress::begin(std::int64_t number, const std::string& id, double left_s) {
  out_.status(heading(number, id) + " ..." + left_text(left_s));
}

void Progress::done(std::int64_t number, const std::string& id, const CaseOutcome& outcome,
                    double left_s) {
  const bool ok = outcome.status == CaseStatus::ok;
  if (quiet_ && ok) return;
  std::string text = heading(number, id);
  if (!ok) text += fmt::format("  {}: {}", status_text(outcome.status), outcome.why);
  if (!outcome.summary.empty()) text += "  " + outcome.summary;
  if (number < total_) text += left_text(left_s);
  out_.line(text);
}

void Progress::skipped(std::int64_t number, const std::string& id, const std::string& why) {
  out_.line(fmt::format("{}  skipped: {}", heading(number, id), why));
}

}  // namespace switchback::bench
