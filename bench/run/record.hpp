// SPDX-License-Identifier: Apache-2.0
// Bench: one record of `switchback-bench run`: 25 keys, in the same order as in the published
// records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"

namespace switchback::bench {

struct Record {
  std::int64_t repeat = 0;
  Case shape;
  RecordTimes times_ms{};  ///< medians by Field; empty for a field that was not measured
  friend bool operator==(const Record&, const Record&) = default;

  [[nodiscard]] std::optional<double> time(Field field) const { return times_ms[index(field)]; }
  /// The sums of fields in a record: time_standard, time_rowwise and time_global. A sum is empty if
  /// one of its parts is missing.
  [[nodiscard]] std::optional<double> time_standard() const {
    return sum_of(sum_table()[0], times_ms);
  }
  [[nodiscard]] std::optional<double> time_rowwise() const {
    return sum_of(sum_table()[1], times_ms);
  }
  [[nodiscard]] std::optional<double> time_global() const {
    return sum_of(sum_table()[2], times_ms);
  }
};

/// The keys of a record, in order.
const std::vector<std::string>& record_keys();

/// The record as one line without its newline, in the style of the published ones: separators ", "
/// and ": ", doubles as the shortest decimal that reads back as the same double, and whole width
/// multipliers without a decimal point.
std::string to_line(const Record& record);

/// Parses a line of a record file. Throws Error(invalid_argument), which describes the error: not
/// JSON, a key that is missing, surplus or out of order, a value of the wrong type, or a sum that
/// is not the sum of its parts.
Record parse_record(std::string_view line);

/// Which keys a line of a record file must have.
enum class RecordKeys {
  all,
  /// All keys, or all except cast_x, cast_g and cast_w, as in the first published records. The
  /// times of these casts are then empty.
  all_or_without_casts,
};
Record parse_record(std::string_view line, RecordKeys keys);

/// All records in the text of a file. Throws Error(invalid_argument) "FILE:LINE: …".
std::vector<Record> parse_records(std::string_view text, std::string_view file_name,
                                  RecordKeys keys = RecordKeys::all);

/// Whether a record has a time for every one of these fields.
bool complete(const Record& record, const FieldSet& fields) noexcept;

/// Describes a line of another file of this program ("a line of a run file …"), by its member
/// "type". Empty if the line has no such type.
std::string kind_of_line(std::string_view line);

/// A finite double as Python's json writes it: "0.1", "1.0", "1e-07", "1e+16".
std::string number_text(double value);

}  // namespace switchback::bench
