// SPDX-License-Identifier: Apache-2.0
// Bench: what a report draws of records of any workload but `run`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "bench/cli/table.hpp"
#include "bench/picture/svg.hpp"
#include "bench/report/workload_report.hpp"
#include "bench/transformer/chart.hpp"
#include "bench/workload/output.hpp"

namespace switchback::bench {

namespace {

constexpr std::array<std::string_view, 4> parts_of_a_step = {"load", "forward", "backward",
                                                             "optimizer"};

std::optional<double> median_at(const Json& record, std::string_view name) {
  const auto at = record.find(std::string(name));
  if (at == record.end() || !at->is_object() || !at->contains("median")) return std::nullopt;
  return (*at)["median"].is_number() ? std::optional((*at)["median"].get<double>()) : std::nullopt;
}

bool is_ratio(const std::string& name) {
  return name.find("ratio") != std::string::npos && !name.ends_with("_mad");
}

// What tells a row from the others of its group: the case where there are several, and the texts of
// the table.
std::string label_of(const WorkloadRecords& group, const WorkloadRow& row) {
  const bool several = std::any_of(group.rows.begin(), group.rows.end(),
                                   [&](const WorkloadRow& other) { return other.id != row.id; });
  std::string label = several ? row.id : "";
  for (const Column& column : group.columns) {
    if (column.name == "case" || column.name == "note") continue;
    const Json value = row.record.value(column.name, Json());
    if (value.is_object()) break;  // a time: what follows is measured
    const bool varies = std::any_of(
        group.rows.begin(), group.rows.end(),
        [&](const WorkloadRow& other) { return other.record.value(column.name, Json()) != value; });
    if (!column.in_table || !varies || value.is_null()) continue;
    label += (label.empty() ? "" : " ") + (value.is_string()
                                               ? value.get<std::string>()
                                               : fmt::format("{}={}", column.name, value.dump()));
  }
  return label.empty() ? row.id : label;
}

}  // namespace

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
    StackedBars::Bar bar{.label = label_of(group, row), .parts = {}};
    double total = 0;
    for (const std::string& name : bars.names) {
      bar.parts.push_back(median_at(row.record, name).value_or(0));
      total += bar.parts.back();
    }
    if (!(total > 0)) continue;
    bar.note = fmt::format("{} ms{}", number(total), row.disturbed ? " !" : "");
    bars.bars.push_back(std::move(bar));
  }
  return bars.bars.empty() ? std::string() : bars.svg();
}

std::string workload_ratios(const WorkloadRecords& group, const std::string& id) {
  HeatMap map;
  map.id = id;
  map.title = group.name + ": ratios";
  std::vector<std::string> names;
  for (const Column& column : group.columns)
    if (is_ratio(column.name) && column.in_table &&
        std::any_of(group.rows.begin(), group.rows.end(), [&](const WorkloadRow& row) {
          return row.record.value(column.name, Json()).is_number();
        }))
      names.push_back(column.name);
  if (names.empty()) return {};
  map.columns = names;
  for (const WorkloadRow& row : group.rows) {
    std::vector<std::optional<HeatMap::Cell>> cells;
    bool any = false;
    for (const std::string& name : names) {
      const Json value = row.record.value(name, Json());
      auto& cell = cells.emplace_back();
      if (!value.is_number()) continue;
      any = true;
      cell = {.ratio = value.get<double>(),
              .text = fmt::format("{:.2f}", value.get<double>()),
              .doubtful = row.disturbed,
              .title = {}};
    }
    if (!any) continue;
    map.rows.push_back(label_of(group, row));
    map.cells.push_back(std::move(cells));
  }
  return map.svg();
}

std::string workload_losses(const WorkloadRecords& group) {
  std::vector<transformer::LossCurve> curves;
  for (const WorkloadRow& row : group.rows)
    if (const Json curve = row.record.value("curve", Json()); curve.is_object())
      curves.push_back(transformer::curve_of(row.record));
  return curves.empty() ? std::string()
                        : transformer::loss_chart(curves, "validation loss, nats per byte");
}

}  // namespace switchback::bench
