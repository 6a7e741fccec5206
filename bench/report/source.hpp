// SPDX-License-Identifier: Apache-2.0
// Bench: a file of `run` records with all data of its run file, as the reports need them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/machine/ceilings.hpp"
#include "bench/report/report.hpp"

namespace switchback::bench {

/// The lines of the run file that belongs to a file of records; empty if there is none.
std::vector<nlohmann::ordered_json> run_file_lines(const std::string& path);
/// A short name for a file: "NAME" for "folder/NAME.jsonl".
std::string source_label(const std::string& path);

struct ReportSource {
  std::string path;
  std::string label;  ///< short name in pictures: the file's, without folder and extension
  Report report;
  /// The last run_start line of the run file; null: there is no run file.
  nlohmann::ordered_json start;
  std::string dtype;  ///< type of the inputs; empty: not known
  std::optional<Ceilings> ceilings;
  /// Engines that each field used, in the order of fields.
  std::vector<std::pair<std::string, std::set<std::string>>> engines;

  /// Bytes per element of the inputs; 4 if the type is not known.
  [[nodiscard]] double element_bytes() const;
};

/// Loads the record file at `path`, whose content is `text`. Throws Error like load_report().
ReportSource load_source(const std::string& path, const std::string& text);
/// The published records, which are built into the program: their text, and the same loaded for a
/// report.
std::string_view published_records();
const ReportSource& published_source();

}  // namespace switchback::bench
