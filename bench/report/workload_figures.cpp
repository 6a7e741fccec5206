// SPDX-License-Identifier: Apache-2.0
// Bench: the figures of a report on records of all workloads except `run`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "bench/cli/table.hpp"
#include "bench/report/svg.hpp"
#include "bench/report/workload_report.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

namespace {

constexpr std::array<std::string_view, 4> parts_of_a_step = {"load", "forward", "backward",
                                                             "optimizer"};

std::optional<double> median_at(const Json& record, std::string_view name) {
  const auto at = record.find(std::string(name));
  if (at == record.end() || !at->is_object() || !at->contains("median")) return std::nullopt;
  return (*at)["median"].is_number() ? std::optional((*at)["median"].get<double>()) : std::nullopt;
}

// Whether a text contains this number, and not only as a part of a longer number.
bool has_number(std::string_view text, std::string_view digits) {
  const auto in_number = [&](std::size_t at) {
    return at < text.size() && ((text[at] >= '0' && text[at] <= '9') || text[at] == '.');
  };
  for (std::size_t at = text.find(digits); at != std::string_view::npos;
       at = text.find(digits, at + 1))
    if (!(at > 0 && in_number(at - 1)) && !in_number(at + digits.size())) return true;
  return false;
}

}  // namespace

// Names a row by its case, if the group has several cases, and by the columns in which rows differ.
std::string row_label(const WorkloadRecords& group, const WorkloadRow& row) {
  const bool several = std::any_of(group.rows.begin(), group.rows.end(),
                                   [&](const WorkloadRow& other) { return other.id != row.id; });
  std::string label = several ? row.id : "";
  for (const Column& column : group.columns) {
    if (column.name == "case" || column.name == "note") continue;
    const Json value = row.record.value(column.name, Json());
    // This column is a time, and the columns after it are results too.
    if (value.is_object()) break;
    const bool varies = std::any_of(
        group.rows.begin(), group.rows.end(),
        [&](const WorkloadRow& other) { return other.record.value(column.name, Json()) != value; });
    if (!column.in_table || !varies || value.is_null()) continue;
    if (several && value.is_number() && has_number(row.id, value.dump())) continue;
    label += (label.empty() ? "" : " ") + (value.is_string()
                                               ? value.get<std::string>()
                                               : fmt::format("{}={}", column.name, value.dump()));
  }
  return label.empty() ? row.id : label;
}

std::vector<Column> ratio_columns(const WorkloadRecords& group) {
  std::vector<Column> columns;
  for (const Column& column : group.columns)
    if (column.better != Better::unknown && column.in_table &&
        std::any_of(group.rows.begin(), group.rows.end(), [&](const WorkloadRow& row) {
          return row.record.value(column.name, Json()).is_number();
        }))
      columns.push_back(column);
  return columns;
}

std::string workload_times(const WorkloadRecords& group) {
  StackedBars bars;
  bars.title = group.name + ": times in ms";
  bars.unit = "ms";
  for (const std::string_view part : parts_of_a_step)
    if (std::any_of(group.rows.begin(), group.rows.end(),
                    [&](const WorkloadRow& row) { return median_at(row.record, part) > 0.0; }))
      bars.names.emplace_back(part);
  if (bars.names.empty()) return {};
  for (const WorkloadRow& row : group.rows) {
    StackedBars::Bar bar{.label = row_label(group, row), .parts = {}};
    double total = 0;
    for (const std::string& name : bars.names) {
      bar.parts.push_back(median_at(row.record, name).value_or(0));
      total += bar.parts.back();
    }
    if (!(total > 0)) continue;
    bar.note = fmt::format("{} ms", number(total));
    bar.doubtful = row.disturbed;
    bars.bars.push_back(std::move(bar));
  }
  return bars.bars.empty() ? std::string() : bars.svg();
}

std::string workload_ratios(const WorkloadRecords& group) {
  const std::vector<Column> columns = ratio_columns(group);
  if (columns.empty()) return {};
  HeatMap map;
  map.title = group.name + ": ratios";
  for (const Column& column : columns)
    map.columns.push_back(column.name);
  for (const WorkloadRow& row : group.rows) {
    std::vector<std::optional<HeatMap::Cell>> cells;
    bool any = false;
    for (const Column& column : columns) {
      const Json value = row.record.value(column.name, Json());
      auto& cell = cells.emplace_back();
      if (!value.is_number()) continue;
      any = true;
      const double ratio = value.get<double>();
      cell = {.gain = column.better == Better::more ? ratio : 1 / ratio,
              .text = fmt::format("{:.2f}", ratio),
              .doubtful = row.disturbed,
              .title = {}};
    }
    if (!any) continue;
    map.rows.push_back(row_label(group, row));
    map.cells.push_back(std::move(cells));
  }
  return map.svg();
}

std::string workload_losses(const WorkloadRecords& group) {
  std::vector<Json> records;
  for (const WorkloadRow& row : group.rows)
    records.push_back(row.record);
  const auto workload = make_workload(group.name);  // null if the group is a bench of micro
  return workload != nullptr ? workload->losses_of(records) : std::string();
}

}  // namespace switchback::bench
