// SPDX-License-Identifier: Apache-2.0
// Bench: a file of records with all data of its run file, for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/machine/ceilings.hpp"
#include "bench/report/report.hpp"

namespace switchback::bench {

/// The lines of the run file next to the records; empty if there is none.
std::vector<nlohmann::ordered_json> run_file_lines(const std::string& path);
/// "NAME" of "folder/NAME.jsonl".
std::string source_label(const std::string& path);

struct ReportSource {
  std::string path;
  std::string label;  ///< a short name for pictures: the file's, without folder and extension
  Report report;
  nlohmann::ordered_json start;  ///< the last run_start line; null: no run file
  std::string dtype;             ///< of the inputs; empty: not known
  std::optional<Ceilings> ceilings;
  std::vector<std::pair<std::string, std::set<std::string>>> engines;  ///< by field, in order

  /// Bytes per element of the inputs; 4 if the type is not known.
  [[nodiscard]] double element_bytes() const;
};

/// `text`: the content of the file. Throws Error like load_report().
ReportSource load_source(const std::string& path, const std::string& text);
/// The published records that are part of the program: their text, and their source for a report.
std::string_view published_records();
const ReportSource& published_source();

}  // namespace switchback::bench
