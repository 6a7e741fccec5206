// SPDX-License-Identifier: Apache-2.0
// Bench: records as a table for people, and the sentence that says whether int8 pays.
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
  // The forward with W packed before, where that was measured: in int8 and in floating point.
  std::optional<double> fwd_packed_ms = std::nullopt;
  std::optional<double> standard_fwd_packed_ms = std::nullopt;
  /// The relative standard error of step_speedup(), from the spread of its parts' times.
  std::optional<double> step_error = std::nullopt;
  /// Cores' worth of time that other programs used meanwhile, and whether that was in the way.
  std::optional<double> others_cores = std::nullopt;
  bool disturbed = false;

  /// time_standard over the faster of time_rowwise and time_global.
  [[nodiscard]] std::optional<double> step_speedup() const;
  /// standard_fwd (the faster of W as it lies and W packed) over quantizing X and the int8 product,
  /// W's codes being there: packed, where that was measured, else the faster of rowwise_fwd and
  /// global_fwd.
  [[nodiscard]] std::optional<double> forward_speedup() const;
};

/// Above this an error of a ratio leaves open what the ratio says.
inline constexpr double doubtful_error = 0.1;
/// Ratios outside of these are disturbed measurements, not kernels, unless the machine's int8 rate
/// is more than 4 times its f32 rate: int8 has a quarter of the bytes of f32, and floating point
/// products reach at least half of the share of their ceiling that int8 products reach of theirs.
inline constexpr double least_plausible_speedup = 0.05;
inline constexpr double most_plausible_speedup = 8;

/// A record with what its run file adds to it.
ReportRow report_row(const Record& record, const RunLog& log);
/// The same of a case just measured.
ReportRow report_row(const CaseResult& result, std::optional<double> others_cores, bool disturbed);

/// The relative standard error of `standard` over the faster of the int8 sums, from the 20th and
/// the 80th percentile of each part; nothing if a part was timed fewer than three times.
std::optional<double> step_error(const Record& record,
                                 const std::array<measure::Stats, record_fields>& parts);

struct Report {
  std::string where = "In these records";  ///< how the sentence begins
  std::string machine;                     ///< a line above the table; may be empty
  std::optional<double> s8_tops;           ///< the machine's int8 ceiling, if measured
  std::optional<double> f32_tflops;        ///< its f32 ceiling, if measured
  std::vector<ReportRow> rows;
  std::int64_t replaced = 0;   ///< rows that a later one of the same shape took the place of
  bool without_casts = false;  ///< records of 22 keys
  bool sorted = false;         ///< rows are in the order that was asked for

  /// A row takes the place of an earlier one of the same shape.
  void add(const ReportRow& row);
  /// The largest ratio that kernels explain: twice that of the ceilings, int8 over f32, where both
  /// were measured, and never less than most_plausible_speedup.
  [[nodiscard]] double most_plausible() const;
  /// Why the numbers of one of its rows are not to be trusted: "" if nothing speaks against them.
  [[nodiscard]] std::string doubt(const ReportRow& row) const;
};

/// A record at least this much faster than standard counts as one where int8 pays: less is within
/// what two measurements differ by.
inline constexpr double paying_speedup = 1.02;

/// The rows by work, the smallest first, unless they are sorted otherwise.
std::vector<const ReportRow*> sorted_rows(const Report& report);

/// The table for people before it is laid out: three columns name the shape.
struct ReportCells {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  bool with_errors = false;
  bool with_packed = false;
};
ReportCells report_cells(const Report& report);
/// What its columns mean, in lines.
std::string report_legend(const ReportCells& cells);

/// For `columns` columns; 0: as wide as it is.
std::string report_table(const Report& report, std::size_t columns = 0);
/// A line: the file, how many shapes, and what is to be known of it: no run file, keys that are
/// missing, records that later ones replace.
std::string report_heading(const Report& report, const std::string& path);
/// One sentence with its newline: whether and from which size on int8 pays for training steps and
/// for the forward of inference, by the rows that are not in doubt. A size from which on it pays is
/// named only if it does at every measured size from there.
std::string report_sentence(const Report& report);

/// The sentence of Doubt, about all rows.
std::string report_doubt(const Report& report);
/// Whether the doubt is about all of it, so that the sentence says nothing for sure.
bool not_to_be_trusted(const Report& report);

/// The lines of the run file next to a file of records; none where there is no such file. Throws
/// Error(io_error) for one that cannot be read.
std::vector<std::string> run_file_texts(const std::string& path);
/// `report FILE`: the record file ("-": standard input) and, if it is there, the run file beside
/// it. Throws Error.
Report load_report(const std::string& path);
/// The same of a file that has been read.
Report load_report(const std::string& path, std::string text);

}  // namespace switchback::bench
