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

/// One record in a report on a workload.
struct WorkloadRow {
  Json record;  ///< the record without its workload's name; for `micro`, with times as statistics
  std::string id;
  bool disturbed = false;
};

/// The records of one workload, or of one bench of `micro`, which all have the same columns.
struct WorkloadRecords {
  std::string name;  ///< the name of the workload or bench: "transformer", "micro gemm"
  std::vector<Column> columns;
  std::vector<WorkloadRow> rows;
};

struct WorkloadSource {
  std::string path, label, machine;
  Json start;  ///< the last run_start line of the run file; null: not known
  std::vector<WorkloadRecords> groups;
  /// The number of records that later ones of the same case and key replaced.
  std::size_t replaced = 0;
};
using WorkloadSources = std::vector<WorkloadSource>;

/// The kind of a file of records, from its text: "run", "micro" or the name of another workload. A
/// file whose lines are not records counts as "run"; the reader of `run` then reports the error.
std::string kind_of_records(std::string_view text);

/// Loads a file of records of a workload. `text`: the content of the file, which must be of that
/// kind. Throws Error(invalid_argument), which names the line, for a line that is not a record of
/// the same workload.
WorkloadSource load_workload_source(const std::string& path, const std::string& kind,
                                    const std::string& text);

/// Sorts the records by a column of the CSV: in ascending order, or with '-' before its name in
/// descending order.
void sort_rows(WorkloadSources& sources, std::string_view key);

// The report in the formats of `report`, like the functions for records of `run` in formats.hpp.
std::string report_text(const WorkloadSources& sources, std::size_t columns);
std::string report_markdown(const WorkloadSources& sources);
/// The report as CSV. The members of objects become separate columns, such as "forward.median".
std::string report_csv(const WorkloadSources& sources);
std::string report_json(const WorkloadSources& sources);
/// The report as an HTML page with pictures. Throws Error(unsupported) if the records contain
/// nothing to draw.
std::string report_html(const WorkloadSources& sources);

/// A name for a row: the values that distinguish it from the other rows of its group.
std::string row_label(const WorkloadRecords& group, const WorkloadRow& row);
/// The columns of ratios in the table that have a value in at least one record.
std::vector<Column> ratio_columns(const WorkloadRecords& group);

// Pictures of a group of records as SVG. Each is empty if the group has no such data. A stacked bar
// for each row: the times of the parts of a training step.
std::string workload_times(const WorkloadRecords& group);
/// A heat map of ratios by row and column, blue where they are better than 1. It has only the
/// columns that say whether larger or smaller ratios are better.
std::string workload_ratios(const WorkloadRecords& group);
/// The losses of trainings over steps, as lines.
std::string workload_losses(const WorkloadRecords& group);

}  // namespace switchback::bench
