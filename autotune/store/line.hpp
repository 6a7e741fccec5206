// SPDX-License-Identifier: Apache-2.0
// Tuner: how the text of a cache file falls into lines, and what a line is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "autotune/store/record.hpp"
#include "autotune/store/sha256.hpp"

namespace switchback::autotune {

enum class LineKind {
  blank,
  record,
  newer,  ///< of a schema to come: not read, and not ours to drop
  bad,
};

struct LineInfo {
  LineKind kind = LineKind::bad;
  RecordType type = RecordType::sample;  ///< of a record
  Digest sha{};                          ///< of a record's key
  std::string why;                       ///< of a newer or bad one, why it is not read
};

/// What a line is, for a fraction of what parsing it costs: the CRC is computed and, in the form
/// that to_line() writes, type and hash of the key are found by a scan; only other forms are
/// parsed. So a record can still turn out bad when it is parsed. `ended`: a newline follows.
LineInfo inspect(std::string_view line, bool ended);

/// from_line() for those to whom a newer schema is something else than a bad line.
LineKind parse(std::string_view line, Record& record, std::string& why);

/// Calls visit(number from 1, line, whether a newline ended it). What other systems' editors add is
/// no part of a line: carriage returns, and a byte order mark in front of the first one.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    const bool ended = newline != std::string_view::npos;
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(ended ? newline + 1 : text.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(number, line, ended);
  }
}

}  // namespace switchback::autotune
