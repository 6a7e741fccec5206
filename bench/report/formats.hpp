// SPDX-License-Identifier: Apache-2.0
// Bench: a report of `run` records in the formats that `report` offers.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/figures.hpp"
#include "bench/report/source.hpp"

namespace switchback::bench {

enum class ReportFormat { table, markdown, csv, json, html };
/// The format with this name. For an unknown name, throws Error(invalid_argument) that lists the
/// names.
ReportFormat parse_report_format(std::string_view name);

/// Sorts the records of a report by work (default), or by a column of the CSV: in ascending order,
/// or with '-' before its name in descending order. Rows without a value come last. Throws
/// Error(invalid_argument) for an unknown column.
void sort_rows(Sources& sources, std::string_view key);

/// The report as text for a terminal of `columns` columns; 0: unlimited width.
std::string report_text(const Sources& sources, std::size_t columns);
/// The report as a Markdown table, as GitHub displays it.
std::string report_markdown(const Sources& sources);
/// The report as CSV (RFC 4180) with a header line, and one row for each record of each file.
std::string report_csv(const Sources& sources);
/// The report as a JSON object with the files and their records.
std::string report_json(const Sources& sources);
/// The report as an HTML page without scripts, which loads nothing from elsewhere.
std::string report_html(const Sources& sources);

struct ReportColumn {
  std::string name;
  /// The column's value for a record: a number, a text, a boolean, or null.
  std::function<nlohmann::ordered_json(const ReportSource&, const ReportRow&)> value;
};
const std::vector<ReportColumn>& report_columns();

}  // namespace switchback::bench
