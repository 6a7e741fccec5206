// SPDX-License-Identifier: Apache-2.0
// Tuner: splits the text of a cache file into lines and classifies each line.
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
  newer,  ///< of a newer schema: not read, and never dropped
  bad,
};

struct LineInfo {
  LineKind kind = LineKind::bad;
  RecordType type = RecordType::sample;  ///< of a record
  Digest sha{};                          ///< of a record's key
  std::string why;                       ///< of a newer or bad line: why it is not read
};

/// Classifies a line at a fraction of the cost of parsing it: it computes the CRC and, for a line
/// as to_line() writes it, scans for the type and the hash of the key; other forms are parsed. So a
/// record can still turn out to be bad when it is parsed. `ended`: a newline follows.
LineInfo inspect(std::string_view line, bool ended);

/// from_line() for callers that treat a line of a newer schema differently from a bad line.
LineKind parse(std::string_view line, Record& record, std::string& why);

/// Calls visit(number from 1, line, whether a newline ended it). Carriage returns, and a byte order
/// mark before the first line, which editors on other systems may add, are not part of a line.
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
