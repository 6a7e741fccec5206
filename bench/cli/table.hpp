// SPDX-License-Identifier: Apache-2.0
// Bench: plain text tables for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// A plain text table. Columns are as wide as their widest cell. The first column and those named
/// in `left` are left-aligned, the others right-aligned. Cells may hold UTF-8. Control characters
/// become '?', so that a name read from a machine or a file cannot send commands to the terminal.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<std::string> left = {});

  /// Adds a row. Missing cells are empty; surplus cells are dropped.
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// The table as text: its header, a rule below it, the rows, and a newline after each line.
  [[nodiscard]] std::string text() const;
  /// The table as text that fits into `columns` columns (0: no limit). If it is enough, the last
  /// column's text is broken between words. Otherwise the table is printed in blocks, one below the
  /// other. Each block has the first `keys` columns and as much of the other columns as fits.
  [[nodiscard]] std::string text(std::size_t columns, std::size_t keys = 1) const;
  /// The table as text for the width of the terminal that `stream` writes to; see
  /// terminal_columns().
  [[nodiscard]] std::string text_for(std::FILE* stream, std::size_t keys = 1) const;

 private:
  [[nodiscard]] std::vector<std::size_t> widths() const;
  [[nodiscard]] std::string block(const std::vector<std::size_t>& columns,
                                  const std::vector<std::size_t>& widths) const;
  [[nodiscard]] Table with_last_column_of(std::size_t columns) const;

  std::vector<std::string> header_;
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

/// `text` with everything that is not UTF-8 (for example in a file's name) replaced by U+FFFD.
std::string valid_utf8(std::string_view text);
/// `text` as valid UTF-8 with control characters replaced by '?', so that it is safe to print.
std::string printable(std::string_view text);

/// The width of a text on a terminal. It is the number of code points, because these texts contain
/// no wide or combining characters.
std::size_t text_columns(std::string_view text);

/// A number as text with about three significant digits and no exponent for everyday sizes:
/// "0.0123", "3.61", "947", "1204"; "-" for NaN.
std::string number(double value);
/// A share of a measured upper limit as text: "73 %". Above 100 % it is "!", because the measured
/// limit was too low.
std::string percent_text(double share);
/// A value with its spread as text: "3.61 ± 0.04".
std::string number_with_spread(double value, double spread);
/// A value with the spread of its samples as text: "3.61 ± 0.04". Fewer than three samples have no
/// spread: "3.61 (1 call)".
std::string number_with_spread(double value, double spread, std::int64_t samples);

}  // namespace switchback::bench
