// SPDX-License-Identifier: Apache-2.0
// Bench: the report on records of `run`: a table for users, and a sentence that says whether int8
// pays, that is, whether it is faster than floating point.
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
  // Times of the forward with a packed W, if they were measured: in int8 and in floating point.
  std::optional<double> fwd_packed_ms = std::nullopt;
  std::optional<double> standard_fwd_packed_ms = std::nullopt;
  /// The relative standard error of step_speedup(), estimated from the spread of its parts' times.
  std::optional<double> step_error = std::nullopt;
  /// How much of the machine other programs used during the measurement, in cores, and whether that
  /// disturbed it.
  std::optional<double> others_cores = std::nullopt;
  bool disturbed = false;

  /// The speed-up of a training step: time_standard over the faster of time_rowwise and
  /// time_global.
  [[nodiscard]] std::optional<double> step_speedup() const;
  /// The speed-up of the forward in inference. The numerator is the time of standard_fwd (W
  /// unpacked or packed, whichever is faster). The denominator is the time of quantizing X plus
  /// that of the int8 product with existing codes of W: packed if that was measured, else the
  /// faster of rowwise_fwd and global_fwd.
  [[nodiscard]] std::optional<double> forward_speedup() const;
};

/// A speed-up with a larger relative standard error than this is not conclusive.
inline constexpr double doubtful_error = 0.1;
/// Speed-ups outside of these limits come from disturbed measurements and not from kernels, unless
/// the machine's int8 rate is more than 4 times its f32 rate. The reasons: int8 has a quarter of
/// the bytes of f32. And floating point products reach at least half as large a share of their
/// upper limit as int8 products reach of theirs.
inline constexpr double least_plausible_speedup = 0.05;
inline constexpr double most_plausible_speedup = 8;

/// A row of the report: a record with additional data from its run file.
ReportRow report_row(const Record& record, const RunLog& log);
/// A row of the report for a case that was just measured.
ReportRow report_row(const CaseResult& result, std::optional<double> others_cores, bool disturbed);

/// The relative standard error of the ratio of time_standard to the faster of the int8 sums, from
/// the 20th and the 80th percentile of each part. Empty if a part was timed fewer than three times.
std::optional<double> step_error(const Record& record,
                                 const std::array<measure::Stats, record_fields>& parts);

struct Report {
  std::string where = "In these records";  ///< how the sentence that says whether int8 pays begins
  std::string machine;                     ///< the machine, shown above the table; may be empty
  std::optional<double> s8_tops;           ///< the machine's int8 rate limit in 1e12/s, if measured
  std::optional<double> f32_tflops;        ///< the machine's f32 rate limit in 1e12/s, if measured
  std::vector<ReportRow> rows;
  std::int64_t replaced = 0;   ///< the number of rows that a later row of the same shape replaced
  bool without_casts = false;  ///< whether the records have only 22 keys, without the casts
  bool sorted = false;         ///< whether `rows` are already in the order that the user requested

  /// Adds a row, which replaces an earlier row of the same shape.
  void add(const ReportRow& row);
  /// The largest speed-up that kernels can explain. It is twice the ratio of the int8 to the f32
  /// rate limit if both were measured, but at least most_plausible_speedup.
  [[nodiscard]] double most_plausible() const;
  /// Why the numbers of a row are in doubt (not to be trusted); "" if there is no reason for doubt.
  [[nodiscard]] std::string doubt(const ReportRow& row) const;
};

/// int8 pays for a shape if its step is at least this many times as fast as in mode standard. Two
/// measurements of the same code may differ by less.
inline constexpr double paying_speedup = 1.02;

/// The rows in ascending order of work, unless the user requested another order.
std::vector<const ReportRow*> sorted_rows(const Report& report);

/// The cells of the report's table for users; the first three columns name the shape.
struct ReportCells {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  bool with_errors = false;
  bool with_packed = false;
};
ReportCells report_cells(const Report& report);
/// Lines of text that explain the columns of the report's table.
std::string report_legend(const ReportCells& cells);

/// The report's table as text for `columns` columns; 0: unlimited width.
std::string report_table(const Report& report, std::size_t columns = 0);
/// A line about a report's file: its path, the number of shapes, and remarks (no run file, missing
/// keys, records that later ones replace).
std::string report_heading(const Report& report, const std::string& path);
/// One sentence with its newline: whether int8 pays, and from which size on, for training steps and
/// for the forward of inference. Only rows that are not in doubt count. A size is named only if
/// int8 pays at every measured size from there on.
std::string report_sentence(const Report& report);

/// The sentence that says how many rows of the report are in doubt, and why (class Doubt).
std::string report_doubt(const Report& report);
/// Whether more than a quarter of the rows are in doubt, so that the report says nothing reliable.
bool not_to_be_trusted(const Report& report);

/// The lines of the run file next to a file of records; empty if there is no such file. Throws
/// Error(io_error) if it cannot be read.
std::vector<std::string> run_file_texts(const std::string& path);
/// `report FILE`: loads the record file ("-": standard input) and, if it exists, the run file next
/// to it. Throws Error.
Report load_report(const std::string& path);
/// Makes the report for a file whose content is `text`. Also reads the run file next to `path`.
Report load_report(const std::string& path, std::string text);

}  // namespace switchback::bench
