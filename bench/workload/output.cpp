// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/output.hpp"

namespace switchback::bench {

namespace {
constexpr std::string_view record_line_start = "{\"repeat\":";
// More than a line of either file takes.
constexpr std::int64_t record_line_bytes = 1200;
constexpr std::int64_t run_log_line_bytes = 8192;
}  // namespace

RunOutput::RunOutput(const std::string& out, OpenMode mode, std::int64_t cases)
    : records_(out, mode, record_line_start, [](std::string_view line) { parse_record(line); }) {
  records_.reserve(cases * record_line_bytes);
  for (const std::string& line : records_.lines())
    existing_.push_back(parse_record(line));
  if (!records_.regular()) return;
  run_log_.emplace(run_log_path(out), mode, run_log_line_start, check_run_log_line);
  run_log_->reserve((cases + 2) * run_log_line_bytes);
  log_ = parse_run_log(run_log_->lines());
}

void RunOutput::write(const Record& record) {
  records_.write(to_line(record));
}

void RunOutput::write(const nlohmann::ordered_json& run_log_line) {
  if (run_log_) run_log_->write(json_line(run_log_line));
}

std::vector<std::string> RunOutput::notes() const {
  std::vector<std::string> all = records_.notes();
  if (run_log_) all.insert(all.end(), run_log_->notes().begin(), run_log_->notes().end());
  return all;
}

bool complete(const Record& record, const FieldSet& fields) noexcept {
  for (std::size_t i = 0; i < record_fields; ++i)
    if (fields[i] && !record.times_ms[i]) return false;
  return true;
}

}  // namespace switchback::bench
