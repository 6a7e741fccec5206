// SPDX-License-Identifier: Apache-2.0
// Bench: records as a table for people, and the sentence that says whether int8 pays.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/record.hpp"
#include "bench/run_log.hpp"

namespace switchback::bench {

struct ReportRow {
  Record record;
  // The forward with W packed before, where that was measured: in int8 and in floating point.
  std::optional<double> fwd_packed_ms = std::nullopt;
  std::optional<double> standard_fwd_packed_ms = std::nullopt;

  /// time_standard over the faster of time_rowwise and time_global.
  [[nodiscard]] std::optional<double> step_speedup() const;
  /// standard_fwd (the faster of W as it lies and W packed) over quantizing X and the int8 product,
  /// W's codes being there: packed, where that was measured, else the faster of rowwise_fwd and
  /// global_fwd.
  [[nodiscard]] std::optional<double> forward_speedup() const;
};

/// A record with what its run file adds to it.
ReportRow report_row(const Record& record, const RunLog& log);

struct Report {
  std::string where = "In these records";  ///< how the sentence begins
  std::string machine;                     ///< a line above the table; may be empty
  std::optional<double> s8_tops;           ///< the machine's int8 ceiling, if measured
  std::vector<ReportRow> rows;

  /// A row takes the place of an earlier one of the same shape.
  void add(const ReportRow& row);
};

/// A record at least this much faster than standard counts as one where int8 pays: less is within
/// what two measurements differ by.
inline constexpr double paying_speedup = 1.02;

std::string report_table(const Report& report);
/// One sentence with its newline: whether and from which size on int8 pays for training steps and
/// for the forward of inference. A size from which on it pays is named only if it does at every
/// measured size from there.
std::string report_sentence(const Report& report);

/// `report FILE`: the record file and, if it is there, the run file beside it. Throws Error.
Report load_report(const std::string& path);

}  // namespace switchback::bench
