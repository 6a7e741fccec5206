// SPDX-License-Identifier: Apache-2.0
// Studies: the tables of data/reference that are part of the program, so that measured figures can
// be compared with published ones without a file.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// A table of comma-separated values.
class PublishedTable {
 public:
  /// By the file's name without its extension: "fragmented_linear". The table must exist.
  explicit PublishedTable(std::string_view name);

  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }
  /// The text in a row and in the column of this name; the column must exist.
  [[nodiscard]] std::string_view text(std::size_t row, std::string_view column) const;
  /// The same as a number; empty if the field is empty.
  [[nodiscard]] std::optional<double> number(std::size_t row, std::string_view column) const;

 private:
  std::vector<std::string_view> columns_;
  std::vector<std::vector<std::string_view>> rows_;
};

/// The texts of those files by name, added to the program by the build.
struct EmbeddedTable {
  std::string_view name;
  std::string_view text;
};
std::span<const EmbeddedTable> embedded_tables();

}  // namespace switchback::bench
