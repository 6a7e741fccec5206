// SPDX-License-Identifier: Apache-2.0
#include "studies/published/published.hpp"

#include <algorithm>
#include <charconv>

#include "core/assert.hpp"

namespace switchback::bench {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

PublishedTable::PublishedTable(std::string_view name) {
  for (const EmbeddedTable& table : embedded_tables()) {
    if (table.name != name) continue;
    for (const std::string_view line : split(table.text, '\n'))
      if (!line.empty()) rows_.push_back(split(line, ','));
  }
  SWITCHBACK_ASSERT(!rows_.empty());
  columns_ = rows_.front();
  rows_.erase(rows_.begin());
}

std::string_view PublishedTable::text(std::size_t row, std::string_view column) const {
  const auto at = std::find(columns_.begin(), columns_.end(), column);
  SWITCHBACK_ASSERT(at != columns_.end());
  const auto index = static_cast<std::size_t>(at - columns_.begin());
  return index < rows_[row].size() ? rows_[row][index] : std::string_view();
}

std::optional<double> PublishedTable::number(std::size_t row, std::string_view column) const {
  const std::string_view field = text(row, column);
  double value = 0;
  const auto result = std::from_chars(field.data(), field.data() + field.size(), value);
  if (field.empty() || result.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace switchback::bench
