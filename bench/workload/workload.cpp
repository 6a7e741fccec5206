// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/workload/command.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/statistic.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

double number_or_zero(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

}  // namespace

std::string_view status_text(CaseStatus status) noexcept {
  switch (status) {
    case CaseStatus::ok:
      return "ok";
    case CaseStatus::skipped:
      return "skipped";
    case CaseStatus::wrong:
      return "wrong";
    case CaseStatus::unsupported:
      return "unsupported";
    case CaseStatus::oom:
      return "oom";
    case CaseStatus::timeout:
      return "timeout";
  }
  return "unknown";
}

std::vector<std::string> cells_of(const std::vector<Column>& columns, const Json& record) {
  std::vector<std::string> cells;
  for (const Column& column : columns)
    if (column.in_table) cells.push_back(cell_of(record.value(column.name, Json())));
  return cells;
}

std::string cell_of(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return number(value.get<double>());
  if (value.is_object() && value.contains("median"))
    return number_with_spread(number_or_zero(value, "median"), number_or_zero(value, "mad"));
  return value.dump();
}

Table table_of(const std::vector<Column>& columns) {
  std::vector<std::string> headings, left;
  for (const Column& column : columns) {
    if (!column.in_table) continue;
    headings.push_back(column.unit.empty() ? column.name
                                           : fmt::format("{} [{}]", column.name, column.unit));
    if (column.is_text) left.push_back(headings.back());
  }
  return Table(std::move(headings), std::move(left));
}

void Workload::add_options(CLI::App& command, SessionOptions& shared) {
  add_session_options(command, shared);
}

RecordFormat Workload::format() const {
  const std::string own(name());
  std::vector<std::string> keys = {"workload", "case"};
  for (const Column& column : columns())
    keys.push_back(column.name);
  RecordFormat format;
  format.line_start = fmt::format("{{\"workload\":{}", Json(own).dump());
  format.read = [own, keys](std::string_view line) -> RecordedCase {
    const Json record = Json::parse(line, nullptr, false);
    core::require(record.is_object(), "not a JSON object");
    core::require(text_at(record, "workload") == own, "not a record of {}", own);
    std::vector<std::string> found;
    for (const auto& [key, value] : record.items())
      found.push_back(key);
    core::require(found == keys, "a record of {} whose keys are not {}", own,
                  fmt::join(keys, ", "));
    // A record whose case did not fit into memory is incomplete, because the case may fit at
    // another time.
    return {text_at(record, "case"), record.value("fits", Json()) != false};
  };
  return format;
}

void Workload::take_existing(const std::vector<std::string>& records,
                             const std::vector<std::string>& /*run_lines*/, const Sink& show) {
  const std::vector<Column> all = columns();
  for (const std::string& line : records) {
    records_.push_back(Json::parse(line));
    show({line, cells_of(all, records_.back()), {}});
  }
}

void Workload::print_report(Session& session, const Table& table, const std::string& doubt,
                            std::FILE* to) const {
  fmt::print(to, "\n{}{}", doubt, table.text_for(to));
  print_more(session, to);
}

Row Workload::row(const std::string& case_id, const Json& values) {
  const std::vector<Column> all = columns();
  Json record = {{"workload", name()}, {"case", case_id}};
  for (const Column& column : all)
    record[column.name] = values.value(column.name, Json());
  for (const auto& [key, value] : values.items())
    if (!record.contains(key))
      core::fail(Status::internal, "{}: its records have no column '{}'", name(), key);
  Json samples = take_samples(record);
  records_.push_back(std::move(record));
  const Json& kept = records_.back();
  return {json_line(kept), cells_of(all, kept), {}, std::move(samples)};
}

}  // namespace switchback::bench
