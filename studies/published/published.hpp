// SPDX-License-Identifier: Apache-2.0
// Studies: tables of published figures from data/reference, which are compiled into the program, so
// that it can compare its own figures with them without a file.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// A published table of comma-separated values, whose first line has the names of the columns.
class PublishedTable {
 public:
  /// Finds a table by its file name without extension, such as "fragmented_linear". It must exist.
  explicit PublishedTable(std::string_view name);

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }
  /// The text of a field, by row number and name of the column, which must exist.
  [[nodiscard]] std::string_view text(std::size_t row, std::string_view column) const;
  /// The number in a field, by row number and name of the column; empty if the field is empty.
  [[nodiscard]] std::optional<double> number(std::size_t row, std::string_view column) const;

 private:
  std::vector<std::string_view> columns_;
  std::vector<std::vector<std::string_view>> rows_;
};

/// A file of data/reference: its name without extension and its text. The build generates the list.
struct EmbeddedTable {
  std::string_view name;
  std::string_view text;
};
std::span<const EmbeddedTable> embedded_tables();

}  // namespace switchback::bench
