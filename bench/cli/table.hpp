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

/// Columns are as wide as their widest cell. The first column and those named in `left` are
/// left-aligned, the others right-aligned. Cells may hold UTF-8; control characters become '?', so
/// that a name read from a machine or a file cannot send commands to the terminal.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<std::string> left = {});

  /// Missing cells are empty; surplus cells are dropped.
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// The table with its header, a rule below it, and a newline after each line.
  [[nodiscard]] std::string text() const;
  /// The same, fitted to `columns` columns (0: no limit). If it is enough to break a last column of
  /// text between words, that is done. Otherwise the table is printed in blocks, one below the
  /// other. Each block has the first `keys` columns and the further columns that fit.
  [[nodiscard]] std::string text(std::size_t columns, std::size_t keys = 1) const;
  /// For the stream that the table is printed to; see terminal_columns().
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
/// The same with control characters replaced by '?'.
std::string printable(std::string_view text);

/// The width of the text on a terminal: its number of code points, because these texts contain no
/// wide or combining characters.
std::size_t text_columns(std::string_view text);

/// A value with about three significant digits and no exponent for everyday sizes: "0.0123",
/// "3.61", "947", "1204"; "-" for NaN.
std::string number(double value);
/// A share of a ceiling: "73 %"; "!" above 100, where the measured ceiling was too low.
std::string percent_text(double share);
/// "3.61 ± 0.04"
std::string number_with_spread(double value, double spread);
/// The same with the number of samples. Fewer than three have no spread: "3.61 (1 call)".
std::string number_with_spread(double value, double spread, std::int64_t samples);

}  // namespace switchback::bench
