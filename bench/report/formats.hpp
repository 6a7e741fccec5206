// SPDX-License-Identifier: Apache-2.0
// Bench: a report in formats for other programs.
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
/// Throws Error(invalid_argument) that lists the names.
ReportFormat parse_report_format(std::string_view name);

/// The order of rows: by work (default), or by a column of the CSV in ascending order; with '-'
/// before its name, in descending order. Rows without a value come last. Throws
/// Error(invalid_argument).
void sort_rows(Sources& sources, std::string_view key);

/// For `columns` columns; 0: unlimited width.
std::string report_text(const Sources& sources, std::size_t columns);
/// A Markdown table as on GitHub.
std::string report_markdown(const Sources& sources);
/// RFC 4180 with a header line; one row for each record of each file.
std::string report_csv(const Sources& sources);
/// An object with the files and their records.
std::string report_json(const Sources& sources);
/// A page without scripts, which loads nothing from elsewhere.
std::string report_html(const Sources& sources);

struct ReportColumn {
  std::string name;
  /// A number, a text, a boolean, or null.
  std::function<nlohmann::ordered_json(const ReportSource&, const ReportRow&)> value;
};
const std::vector<ReportColumn>& report_columns();

}  // namespace switchback::bench
