// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/cli/terminal.hpp"

namespace switchback::bench {

namespace {

// The least width of a wrapped text column. A narrower one would have about one word per line.
constexpr std::size_t narrowest_text = 18;
constexpr std::size_t gap = 2;

int digits_after_point(double value) {
  const double magnitude = std::abs(value);
  if (magnitude >= 100 || magnitude == 0) return 0;
  if (magnitude >= 10) return 1;
  if (magnitude >= 1) return 2;
  return 2 - static_cast<int>(std::floor(std::log10(magnitude)));
}

}  // namespace

Table::Table(std::vector<std::string> header, std::vector<std::string> left)
    : header_(std::move(header)), left_(header_.size(), false) {
  for (std::size_t i = 0; i < header_.size(); ++i)
    left_[i] = i == 0 || std::find(left.begin(), left.end(), header_[i]) != left.end();
  for (std::string& heading : header_)
    heading = printable(heading);
}

void Table::add(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row)
    cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < header_.size(); ++i) {
    std::size_t widest = text_columns(header_[i]);
    for (const auto& row : rows_)
      widest = std::max(widest, text_columns(row[i]));
    widths.push_back(widest);
  }
  return widths;
}

std::string Table::block(const std::vector<std::size_t>& columns,
                         const std::vector<std::size_t>& widths) const {
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (const std::size_t i : columns) {
      const std::string cell = cell_of(i);
      const std::string padding(widths[i] - text_columns(cell), ' ');
      if (i != columns.front()) line += std::string(gap, ' ');
      line += left_[i] ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line([&](std::size_t i) { return header_[i]; });
  add_line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : rows_)
    add_line([&](std::size_t i) { return row[i]; });
  return out;
}

Table Table::with_last_column_of(std::size_t columns) const {
  Table table(header_);
  table.left_ = left_;
  for (const auto& row : rows_) {
    std::vector<std::string> cells = row;
    std::string_view rest = row.back();
    do {
      std::size_t end = rest.size();
      while (end > 0 && text_columns(rest.substr(0, end)) > columns)
        end = rest.find_last_of(' ', end - 1);
      // A word that is wider than the column is not broken.
      if (end == 0 || end == std::string_view::npos) end = std::min(rest.find(' ', 1), rest.size());
      cells.back() = rest.substr(0, end);
      table.rows_.push_back(cells);
      std::fill(cells.begin(), cells.end(), "");
      rest.remove_prefix(end);
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    } while (!rest.empty());
  }
  return table;
}

std::string Table::text() const {
  return text(0);
}

std::string Table::text(std::size_t columns, std::size_t keys) const {
  const std::vector<std::size_t> widths = this->widths();
  std::vector<std::size_t> shown;
  std::size_t total = 0;
  for (std::size_t i = 0; i < header_.size(); ++i) {
    shown.push_back(i);
    total += widths[i] + (i > 0 ? gap : 0);
  }
  if (columns == 0 || total <= columns || header_.size() <= keys) return block(shown, widths);

  const std::size_t last = header_.size() - 1;
  const std::size_t before = total - widths[last];
  if (left_[last] && before + narrowest_text <= columns) {
    const Table narrow = with_last_column_of(columns - before);
    return narrow.block(shown, narrow.widths());
  }

  std::size_t key_width = 0;
  for (std::size_t i = 0; i < keys; ++i)
    key_width += widths[i] + (i > 0 ? gap : 0);
  std::string out;
  for (std::size_t i = keys; i < header_.size();) {
    shown.resize(keys);
    std::size_t width = key_width;
    // Each block has at least one column after the keys, even if that is too wide for the terminal.
    do {
      width += gap + widths[i];
      shown.push_back(i++);
    } while (i < header_.size() && width + gap + widths[i] <= columns);
    out += (out.empty() ? "" : "\n") + block(shown, widths);
  }
  return out;
}

std::string Table::text_for(std::FILE* stream, std::size_t keys) const {
  return text(terminal_columns(stream), keys);
}

std::size_t text_columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string valid_utf8(std::string_view text) {
  // Replaces invalid UTF-8 by U+FFFD, as the JSON output does.
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

std::string printable(std::string_view text) {
  std::string out = valid_utf8(text);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    // The C1 control characters are 0xC2 0x80 … 0x9F in UTF-8.
    const bool c1 =
        c >= 0x80 && c < 0xA0 && i > 0 && static_cast<unsigned char>(out[i - 1]) == 0xC2;
    if (c < 0x20 || c == 0x7F) out[i] = '?';
    if (c1) out[i - 1] = out[i] = '?';
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const int digits = digits_after_point(value);
  return digits > 6 || std::abs(value) >= 1e9 ? fmt::format("{:.2e}", value)
                                              : fmt::format("{:.{}f}", value, digits);
}

std::string percent_text(double share) {
  const double percent = std::round(100 * share);
  return percent > 100 ? "!" : fmt::format("{:.0f} %", percent);
}

std::string number_with_spread(double value, double spread) {
  if (std::isnan(value)) return "-";
  if (!std::isfinite(value)) return number(value);
  const int digits = std::max(digits_after_point(value), 0);
  return digits > 6 ? fmt::format("{:.2e} ± {:.0e}", value, spread)
                    : fmt::format("{:.{}f} ± {:.{}f}", value, digits, spread, digits);
}

std::string number_with_spread(double value, double spread, std::int64_t samples) {
  if (samples >= 3) return number_with_spread(value, spread);
  return fmt::format("{} ({} call{})", number(value), samples, samples == 1 ? "" : "s");
}

}  // namespace switchback::bench
