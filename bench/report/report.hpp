// SPDX-License-Identifier: Apache-2.0
// Bench: records as a table for users, and the sentence that says whether int8 pays.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/case.hpp"
#include "bench/run/log.hpp"
#include "bench/run/record.hpp"

namespace switchback::bench {

struct ReportRow {
  Record record;
  // The forward with a packed W, if that was measured: in int8 and in floating point.
  std::optional<double> fwd_packed_ms = std::nullopt;
  std::optional<double> standard_fwd_packed_ms = std::nullopt;
  /// The relative standard error of step_speedup(), from the spread of the times of its parts.
  std::optional<double> step_error = std::nullopt;
  /// How much other programs used meanwhile, in cores, and whether that disturbed the measurement.
  std::optional<double> others_cores = std::nullopt;
  bool disturbed = false;

  /// time_standard over the faster of time_rowwise and time_global.
  [[nodiscard]] std::optional<double> step_speedup() const;
  /// The speed-up of the forward in inference. The numerator is standard_fwd (W unpacked or packed,
  /// whichever is faster). The denominator is quantizing X plus the int8 product with existing
  /// codes of W: packed if that was measured, else the faster of rowwise_fwd and global_fwd.
  [[nodiscard]] std::optional<double> forward_speedup() const;
};

/// Above this relative error, a ratio is not conclusive.
inline constexpr double doubtful_error = 0.1;
/// Ratios outside of these limits come from disturbed measurements and not from kernels, unless the
/// machine's int8 rate is more than 4 times its f32 rate. The reasons: int8 has a quarter of the
/// bytes of f32. And the share of their ceiling that floating point products reach is at least half
/// of the share that int8 products reach of theirs.
inline constexpr double least_plausible_speedup = 0.05;
inline constexpr double most_plausible_speedup = 8;

/// A record with additional data from its run file.
ReportRow report_row(const Record& record, const RunLog& log);
/// The same for a case that was just measured.
ReportRow report_row(const CaseResult& result, std::optional<double> others_cores, bool disturbed);

/// The relative standard error of `standard` over the faster of the int8 sums, from the 20th and
/// the 80th percentile of each part. Empty if a part was timed fewer than three times.
std::optional<double> step_error(const Record& record,
                                 const std::array<measure::Stats, record_fields>& parts);

struct Report {
  std::string where = "In these records";  ///< the beginning of the sentence
  std::string machine;                     ///< a line above the table; may be empty
  std::optional<double> s8_tops;           ///< the machine's int8 ceiling, if measured
  std::optional<double> f32_tflops;        ///< its f32 ceiling, if measured
  std::vector<ReportRow> rows;
  std::int64_t replaced = 0;   ///< rows that a later row of the same shape replaced
  bool without_casts = false;  ///< records of 22 keys
  bool sorted = false;         ///< rows are in the requested order

  /// A row replaces an earlier one of the same shape.
  void add(const ReportRow& row);
  /// The largest ratio that kernels can explain: twice the ratio of the ceilings (int8 over f32) if
  /// both were measured, but at least most_plausible_speedup.
  [[nodiscard]] double most_plausible() const;
  /// Why the numbers of a row are not to be trusted; "" if there is no reason for doubt.
  [[nodiscard]] std::string doubt(const ReportRow& row) const;
};

/// int8 pays for a record if it is at least this much faster than standard. Two measurements of the
/// same code may differ by less.
inline constexpr double paying_speedup = 1.02;

/// The rows by work in ascending order, unless they were sorted in another order.
std::vector<const ReportRow*> sorted_rows(const Report& report);

/// The table for users before its layout; the first three columns name the shape.
struct ReportCells {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  bool with_errors = false;
  bool with_packed = false;
};
ReportCells report_cells(const Report& report);
/// The meaning of its columns, in lines.
std::string report_legend(const ReportCells& cells);

/// For `columns` columns; 0: unlimited width.
std::string report_table(const Report& report, std::size_t columns = 0);
/// A line with the file, the number of shapes, and remarks: no run file, missing keys, or records
/// that later ones replace.
std::string report_heading(const Report& report, const std::string& path);
/// One sentence with its newline: whether int8 pays, and from which size on, for training steps and
/// for the forward of inference. Only rows that are not in doubt count. A size is named only if
/// int8 pays at every measured size from there on.
std::string report_sentence(const Report& report);

/// The sentence of Doubt, about all rows.
std::string report_doubt(const Report& report);
/// Whether all rows are in doubt, so that the sentence says nothing reliable.
bool not_to_be_trusted(const Report& report);

/// The lines of the run file next to a file of records; empty if there is no such file. Throws
/// Error(io_error) if it cannot be read.
std::vector<std::string> run_file_texts(const std::string& path);
/// `report FILE`: loads the record file ("-": standard input) and, if it exists, the run file next
/// to it. Throws Error.
Report load_report(const std::string& path);
/// The same for a file that has been read.
Report load_report(const std::string& path, std::string text);

}  // namespace switchback::bench
