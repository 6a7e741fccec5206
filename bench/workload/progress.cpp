// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/progress.hpp"

#include <fmt/format.h>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"

namespace switchback::bench {

namespace {

std::string ratio_text(const std::optional<double>& over, const std::optional<double>& under) {
  if (!over || !under || !(*under > 0)) return "-";
  return fmt::format("{:.2f}x", *over / *under);
}

}  // namespace

Progress::Progress(std::int64_t total, bool quiet) : total_(total), quiet_(quiet), out_(quiet) {}

void Progress::begin(std::int64_t number, const Case& c, double left_s) {
  out_.status(fmt::format("[{}/{}] {} ...  about {} left", number, total_, case_id(c),
                          format_duration(left_s)));
}

void Progress::done(std::int64_t number, const CaseResult& result, double left_s) {
  if (quiet_ && result.status == CaseStatus::ok) return;
  std::string text = fmt::format("[{}/{}] {}", number, total_, case_id(result.shape));
  if (result.status != CaseStatus::ok)
    text += fmt::format("  {}: {}", status_text(result.status), result.why);
  const Record record = result.record();
  if (record.time_standard())
    text += fmt::format("  standard {} ms, rowwise {}, global {}",
                        bench::number(*record.time_standard()),
                        ratio_text(record.time_standard(), record.time_rowwise()),
                        ratio_text(record.time_standard(), record.time_global()));
  if (number < total_) text += fmt::format("  about {} left", format_duration(left_s));
  out_.line(text);
}

void Progress::skipped(std::int64_t number, const Case& c, const std::string& why) {
  out_.line(fmt::format("[{}/{}] {}  skipped: {}", number, total_, case_id(c), why));
}

void Progress::note(const std::string& text) {
  out_.note(text);
}

void Progress::warning(const std::string& text) {
  out_.warning(text);
}

}  // namespace switchback::bench
