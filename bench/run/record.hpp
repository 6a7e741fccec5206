// SPDX-License-Identifier: Apache-2.0
// Bench: one record of `switchback-bench run`: 25 keys in the order of the published records.
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
  RecordTimes times_ms{};  ///< a field that was not measured is nothing
  friend bool operator==(const Record&, const Record&) = default;

  [[nodiscard]] std::optional<double> time(Field field) const { return times_ms[index(field)]; }
  /// time_standard, time_rowwise, time_global: sums of the parts, or nothing if one is missing.
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

/// The keys in order.
const std::vector<std::string>& record_keys();

/// The record as one line without its newline, in the style of the published ones: ", " and ": "
/// between, doubles as the shortest decimal that reads back as the same double, whole width
/// multipliers without a point.
std::string to_line(const Record& record);

/// A line of a record file. Throws Error(invalid_argument) that says what is wrong: not JSON, a key
/// missing, surplus or out of order, a value of the wrong type, a sum that is not the sum of its
/// parts.
Record parse_record(std::string_view line);

/// Which keys a line must have.
enum class RecordKeys {
  all,
  /// Or all but cast_x, cast_g and cast_w, as the first published records: those times are nothing.
  all_or_without_casts,
};
Record parse_record(std::string_view line, RecordKeys keys);

/// All records of a file's text. Throws Error(invalid_argument) "FILE:LINE: …".
std::vector<Record> parse_records(std::string_view text, std::string_view file_name,
                                  RecordKeys keys = RecordKeys::all);

/// Whether a record has every field of the set that records have.
bool complete(const Record& record, const FieldSet& fields) noexcept;

/// What a file is that has this line where a record should be: "a run file (…)", by the "type" that
/// lines of this program's other files have; empty if it has none.
std::string kind_of_line(std::string_view line);

/// A finite double as Python's json writes it: "0.1", "1.0", "1e-07", "1e+16".
std::string number_text(double value);

}  // namespace switchback::bench
