// SPDX-License-Identifier: Apache-2.0
// Bench: reports on records of all workloads except `run`, and on the output of `micro`: tables and
// pictures that are derived from the columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/report/source.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// A record in a report.
struct WorkloadRow {
  Json record;  ///< without the workload's name; for `micro`, times as statistics
  std::string id;
  bool disturbed = false;
};

/// The records of a workload, or of a bench of `micro`. All have the same columns.
struct WorkloadRecords {
  std::string name;  ///< "transformer", "micro gemm"
  std::vector<Column> columns;
  std::vector<WorkloadRow> rows;
};

struct WorkloadSource {
  std::string path, label, machine;
  Json start;  ///< the last run_start line; null: not known
  std::vector<WorkloadRecords> groups;
  std::size_t replaced = 0;  ///< records that later ones of the same case and key replaced
};
using WorkloadSources = std::vector<WorkloadSource>;

/// The kind of a file of records: "run", "micro" or the name of another workload. A file whose
/// lines are not records counts as "run"; the reader of `run` then reports the error.
std::string kind_of_records(std::string_view text);

/// `text`: the content of the file, which must be of that kind. Throws Error(invalid_argument),
/// which names the line, for a line that is not a record of the same workload.
WorkloadSource load_workload_source(const std::string& path, const std::string& kind,
                                    const std::string& text);

/// Sorts by a column of the CSV in ascending order; with '-' before its name, in descending order.
void sort_rows(WorkloadSources& sources, std::string_view key);

// See formats.hpp.
std::string report_text(const WorkloadSources& sources, std::size_t columns);
std::string report_markdown(const WorkloadSources& sources);
/// The members of objects become separate columns: "forward.median".
std::string report_csv(const WorkloadSources& sources);
std::string report_json(const WorkloadSources& sources);
/// Throws Error(unsupported) if the records contain nothing to draw.
std::string report_html(const WorkloadSources& sources);

/// The values that distinguish a row from the other rows of its group.
std::string row_label(const WorkloadRecords& group, const WorkloadRow& row);
/// The ratio columns of the table that have a value in at least one record.
std::vector<Column> ratio_columns(const WorkloadRecords& group);

// The pictures of a group; each is empty if the group has no such data.
/// The parts of a step, by row.
std::string workload_times(const WorkloadRecords& group);
/// Ratios by row and column, blue where they are better than 1. Only columns that say whether
/// larger or smaller is better.
std::string workload_ratios(const WorkloadRecords& group);
/// Losses over steps.
std::string workload_losses(const WorkloadRecords& group);

}  // namespace switchback::bench
