// SPDX-License-Identifier: Apache-2.0
// Bench: reports of records of any workload but `run`, and of what `micro` wrote: tables and
// pictures that follow from the columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/report/source.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// A record in a report.
struct WorkloadRow {
  Json record;  ///< without what names its workload; of `micro`, times as statistics
  std::string id;
  bool disturbed = false;
};

/// The records of a workload, or of a bench of `micro`, which have the same columns.
struct WorkloadRecords {
  std::string name;  ///< "transformer", "micro gemm"
  std::vector<Column> columns;
  std::vector<WorkloadRow> rows;
};

struct WorkloadSource {
  std::string path, label, machine;
  Json start;  ///< the last run_start line; null: not known
  std::vector<WorkloadRecords> groups;
  std::size_t replaced = 0;  ///< records that later ones of the same case and key took the place of
};
using WorkloadSources = std::vector<WorkloadSource>;

/// What a file of records is of: "run", "micro" or the name of another workload. Anything that is
/// no record counts as "run", whose reader says what is wrong with it.
std::string kind_of_records(std::string_view text);

/// `text`: the content of the file, of that kind. Throws Error(invalid_argument) that names the
/// line for what is no record of the same workload.
WorkloadSource load_workload_source(const std::string& path, const std::string& kind,
                                    const std::string& text);

/// By a column of the CSV, the least or with '-' before its name the greatest first.
void sort_rows(WorkloadSources& sources, std::string_view key);

// See formats.hpp.
std::string report_text(const WorkloadSources& sources, std::size_t columns);
std::string report_markdown(const WorkloadSources& sources);
/// Members of objects are columns of their own, "forward.median".
std::string report_csv(const WorkloadSources& sources);
std::string report_json(const WorkloadSources& sources);
/// Throws Error(unsupported) for records of which there is nothing to draw.
std::string report_html(const WorkloadSources& sources);

/// What tells a row from the others of its group.
std::string row_label(const WorkloadRecords& group, const WorkloadRow& row);
/// The columns of ratios that the table shows and at least one record has.
std::vector<Column> ratio_columns(const WorkloadRecords& group);

// What the pictures draw of a group; each is empty if there is nothing of its kind.
/// The parts of a step, by row.
std::string workload_times(const WorkloadRecords& group);
/// Ratios, by row and column, blue where they are better than 1; of columns that say what is
/// better.
std::string workload_ratios(const WorkloadRecords& group);
/// Losses over steps.
std::string workload_losses(const WorkloadRecords& group);

}  // namespace switchback::bench
