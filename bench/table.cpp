// SPDX-License-Identifier: Apache-2.0
#include "bench/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace switchback::bench {

namespace {

// Code points, which is what a terminal shows of the text these tables hold (no wide or combining
// characters).
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

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
}

void Table::add(std::vector<std::string> row) {
  row.resize(header_.size());
  for (std::string& cell : row)
    cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < header_.size(); ++i) {
    std::size_t widest = width(header_[i]);
    for (const auto& row : rows_)
      widest = std::max(widest, width(row[i]));
    widths.push_back(widest);
  }
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - width(cells[i]), ' ');
      if (i > 0) line += "  ";
      line += left_[i] ? cells[i] + padding : padding + cells[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  add_line(header_);
  std::vector<std::string> rule;
  for (const std::size_t w : widths)
    rule.emplace_back(w, '-');
  add_line(rule);
  for (const auto& row : rows_)
    add_line(row);
  return out;
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto c = static_cast<unsigned char>(out[i]);
    // C1 controls are 0xC2 0x80 … 0x9F in UTF-8.
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

std::string number_with_spread(double value, double spread) {
  if (std::isnan(value)) return "-";
  if (!std::isfinite(value)) return number(value);
  const int digits = std::max(digits_after_point(value), 0);
  return digits > 6 ? fmt::format("{:.2e} ± {:.0e}", value, spread)
                    : fmt::format("{:.{}f} ± {:.{}f}", value, digits, spread, digits);
}

}  // namespace switchback::bench
