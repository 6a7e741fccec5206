// SPDX-License-Identifier: Apache-2.0
// Bench: reads files of records of all workloads except `run`, for reports.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/cli/cli.hpp"
#include "bench/compare/side.hpp"
#include "bench/report/workload_report.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

bool is_micro(const Json& line) {
  return text_at(line, "type").starts_with("micro");
}

// The columns that a workload declares; empty if no workload has this name.
std::vector<Column> declared_columns(const std::string& workload) {
  const auto known = make_workload(workload);
  return known != nullptr ? known->columns() : std::vector<Column>();
}

bool is_scalar(const Json& value) {
  return value.is_primitive() || (value.is_object() && value.contains("median"));
}

// The columns that occur in the records, with what their workload says about them. `shown`: names
// of columns that are in the table even if the workload leaves them out.
std::vector<Column> columns_of(const WorkloadRecords& group, const std::vector<Column>& declared,
                               const Json& shown) {
  std::vector<Column> columns;
  for (const WorkloadRow& row : group.rows)
    for (const auto& [name, value] : row.record.items()) {
      const auto same = [&name = name](const Column& c) { return c.name == name; };
      if (std::any_of(columns.begin(), columns.end(), same)) continue;
      Column column;
      const auto known = std::find_if(declared.begin(), declared.end(), same);
      if (known != declared.end()) column = *known;
      column.name = name;
      column.in_table = known != declared.end() ? known->in_table || shown.contains(name) : true;
      columns.push_back(std::move(column));
    }
  for (Column& column : columns) {
    bool any = false, text = false;
    for (const WorkloadRow& row : group.rows) {
      const Json value = row.record.value(column.name, Json());
      if (value.is_null()) continue;
      any = true;
      text = text || value.is_string();
      if (!is_scalar(value)) column.in_table = false;
    }
    column.is_text = text;
    if (!any) column.in_table = false;
  }
  return columns;
}

// The times of the subject or the rival in a line of `micro`, in the form of a record's statistic.
Json race_times(const Json& side) {
  Json times = Json::object();
  for (const auto& [member, value] : side.items())
    if (member != "name")
      times[member.ends_with("_ms") ? member.substr(0, member.size() - 3) : member] = value;
  return times;
}

// Converts a line of `micro` to the form of other records: first the names of subject and rival,
// then their times.
Json micro_record(const Json& line) {
  constexpr const char* sides[] = {"subject", "rival"};
  Json record = Json::object();
  for (const auto& [name, value] : line.items()) {
    if (name == "type" || name == "v" || name == "bench" || name == "rival") continue;
    if (name != "subject") {
      record[name] = value;
      continue;
    }
    for (const char* side : sides)
      if (line.contains(side) && line[side].is_object())
        record[side] = line[side].value("name", Json());
    for (const char* side : sides)
      if (line.contains(side) && line[side].is_object())
        record[std::string(side) + "_ms"] = race_times(line[side]);
  }
  return record;
}

// Whether a column of `micro` is in the table for users.
bool in_micro_table(std::string_view name) {
  constexpr std::string_view shown[] = {
      "variant",         "dtype", "batch",    "dim_in", "dim_out", "output", "subject",
      "subject_ms",      "rival", "rival_ms", "ratio",  "gop_s",   "gb_s",   "what",
      "through",         "ns",    "value",    "unit",   "bar",     "note",   "allocations",
      "share_of_ceiling"};
  return std::find(std::begin(shown), std::end(shown), name) != std::end(shown);
}

std::string micro_id(const Json& line) {
  if (line.contains("what"))
    return text_at(line, "what") +
           (line.contains("through") ? ", " + text_at(line, "through") : "");
  std::string id = fmt::format("{}x{}", text_at(line, "batch"), text_at(line, "dim_in"));
  if (line.value("dim_out", Json(0)) != 0) id += "x" + text_at(line, "dim_out");
  return id;
}

WorkloadRecords& group_named(std::vector<WorkloadRecords>& groups, const std::string& name) {
  for (WorkloadRecords& group : groups)
    if (group.name == name) return group;
  WorkloadRecords group;
  group.name = name;
  return groups.emplace_back(std::move(group));
}

// Drops each row that a later row with the same case and key replaces. Rows of one run always
// differ in these. Returns the number of dropped rows.
std::size_t keep_last(WorkloadRecords& group) {
  std::map<std::string, std::size_t> last;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < group.rows.size(); ++i) {
    std::string name = group.rows[i].id;
    for (const auto& [member, value] : leading_members(group.rows[i].record))
      name += fmt::format("\n{}={}", member, value);
    last[name] = i;
    names.push_back(std::move(name));
  }
  std::vector<WorkloadRow> kept;
  for (std::size_t i = 0; i < group.rows.size(); ++i)
    if (last[names[i]] == i) kept.push_back(std::move(group.rows[i]));
  const std::size_t dropped = group.rows.size() - kept.size();
  group.rows = std::move(kept);
  return dropped;
}

void describe_source(WorkloadSource& source, Json start) {
  if (const auto machine = start.find("machine"); machine != start.end())
    source.machine = fmt::format("{}, {}, {} threads", text_at(*machine, "cpu"),
                                 text_at(*machine, "isa"), text_at(*machine, "threads"));
  source.start = std::move(start);
}

}  // namespace

std::string kind_of_records(std::string_view text) {
  const Json first = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  if (!first.is_object()) return "run";
  if (is_micro(first)) return "micro";
  return first.contains("workload") && first.contains("case") ? text_at(first, "workload") : "run";
}

WorkloadSource load_workload_source(const std::string& path, const std::string& kind,
                                    const std::string& text) {
  WorkloadSource source;
  source.path = path;
  source.label = source_label(path);
  std::map<std::string, bool> disturbed;  // whether the last run of each case was disturbed
  for (Json& line : run_file_lines(path)) {
    if (text_at(line, "type") == "case")
      disturbed[text_at(line, "id")] = line.value("disturbed", Json()) == true;
    if (text_at(line, "type") == "run_start") describe_source(source, std::move(line));
  }
  const std::string name = path == "-" ? "standard input" : path;
  std::vector<std::string> lines = split_list(text, '\n');
  // An incomplete last line, which is still being written or was truncated, is not a record.
  if (!lines.empty() && !text.ends_with('\n') && !Json::accept(lines.back())) lines.pop_back();
  for (std::size_t number = 0; number < lines.size(); ++number) {
    Json line = Json::parse(lines[number], nullptr, false);
    const auto refuse = [&](const std::string& what) {
      core::fail(Status::invalid_argument, "{}:{}: {}", name, number + 1, what);
    };
    if (!line.is_object()) refuse("not a JSON object");
    if (kind == "micro") {
      const std::string type = text_at(line, "type");
      if (type == "micro_start") describe_source(source, std::move(line));
      if (type == "micro_start" || type == "micro_end") continue;
      if (type != "micro") refuse("not a line of 'micro --out', as the lines before it are");
      group_named(source.groups, "micro " + text_at(line, "bench"))
          .rows.push_back(
              {micro_record(line), micro_id(line), line.value("disturbed", Json()) == true});
      continue;
    }
    if (text_at(line, "workload") != kind || !line.contains("case"))
      refuse(fmt::format("not a record of {}, as the lines before it are", kind));
    const std::string id = text_at(line, "case");
    line.erase("workload");
    const auto known = disturbed.find(id);
    group_named(source.groups, kind)
        .rows.push_back({std::move(line), id, known != disturbed.end() && known->second});
  }
  core::require(!source.groups.empty(), "{}: it has no records", name);
  const Json axes =
      source.start.is_object() ? source.start.value("axes", Json::object()) : Json::object();
  Json shown = Json::object();
  for (const auto& [option, values] : axes.items()) {
    std::string column = option;
    std::replace(column.begin(), column.end(), '-', '_');
    shown[column] = true;
  }
  for (WorkloadRecords& group : source.groups) {
    source.replaced += keep_last(group);
    group.columns = columns_of(group, declared_columns(kind), shown);
    if (kind != "micro") continue;
    for (Column& column : group.columns) {
      column.in_table = column.in_table && in_micro_table(column.name);
      if (column.name.ends_with("_ms")) column.unit = "ms";
      if (column.name == "ratio") {
        column.meaning = "the rival's time divided by the subject's";
        column.better = Better::more;
      }
    }
  }
  return source;
}

}  // namespace switchback::bench
