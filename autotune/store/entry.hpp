// SPDX-License-Identifier: Apache-2.0
// Tuner: an entry of a tuning cache: the results for one problem in one environment. In a file it
// is one line, a JSON object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/statistics.hpp"

namespace switchback::autotune {

/// The version of the layout of cache lines and keys. Lines of other versions are not read.
inline constexpr int schema_version = 1;

/// A problem in a form that has the same meaning on every machine: canonical JSON (flat, keys
/// sorted, no spaces, only integers and strings). Equal problems have equal text.
struct Key {
  std::string json;

  friend bool operator==(const Key&, const Key&) = default;
};

/// A configuration of a problem as text, identified by its engine and its attributes.
struct CandidateText {
  std::string engine;
  /// Names and values of the configuration, in a fixed order: {"mc", 96}, …
  std::vector<std::pair<std::string, std::int64_t>> attributes;
  /// The same configuration in a library's opaque form (cuBLASLt: 64 bytes), in hexadecimal; may be
  /// empty.
  std::string algo_hex;

  friend bool operator==(const CandidateText& a, const CandidateText& b) noexcept {
    return a.engine == b.engine && a.attributes == b.attributes;
  }
};
/// A configuration as text for users: "avx512_vnni mc=96 nc=512".
std::string describe(const CandidateText& candidate);

/// The software and hardware of a measurement. The hard members must match before an entry is used,
/// if its engine depends on them. The other members are kept and shown, and compared only if
/// TunerOptions::strict is set.
struct Environment {
  std::string kernels;   ///< hard (must match): version of this library's own kernels
  std::string cublaslt;  ///< version; hard for cuBLASLt's algorithms; empty: not available
  std::string onednn;    ///< version; hard (must match) for oneDNN's engines
  std::string openblas;  ///< version; hard (must match) for OpenBLAS
  std::string driver;    ///< version of the GPU driver; not hard
  std::string product;   ///< CPU or GPU: "AMD EPYC 9R45", "NVIDIA H200"
  std::string tool;      ///< version of this library

  friend bool operator==(const Environment&, const Environment&) = default;
};
/// Whether all hard members of two environments are equal, so that results measured in one are
/// valid in the other.
bool same_hard(const Environment& a, const Environment& b) noexcept;

/// How thoroughly a problem was measured. Of two winners that are not in_doubt(), the one with more
/// effort is kept.
enum class Effort : int { cut = 0, quick = 1, normal = 2, thorough = 3 };
std::string_view effort_name(Effort effort) noexcept;

/// The fastest candidate, and how it was measured.
struct Winner {
  CandidateText candidate;
  measure::Stats stats;
  double default_median_ms = 0;  ///< median time of the default configuration
  Effort effort = Effort::normal;
  /// The number of rounds that other programs disturbed and that were discarded; of those disturbed
  /// but kept; and of all rounds that were timed.
  std::int64_t discarded_rounds = 0, disturbed_rounds = 0, timed_rounds = 0;
  std::string time;  ///< when it was measured: "2026-11-21T17:36:23Z"

  friend bool operator==(const Winner&, const Winner&) = default;
};
/// Whether other programs disturbed so much of a measurement that it is not to be trusted. Such a
/// winner is kept, shown and measured again, but never used.
bool in_doubt(const Winner& winner) noexcept;
/// Whether winner `a` is preferred to `b`: first one that is not in_doubt(), then the one with more
/// effort, then the later one by is_later(), then the smaller text.
bool better_winner(const Winner& a, const Winner& b);

/// The result of a check of a candidate: it was wrong, or it needed validation and was right.
struct Validated {
  CandidateText candidate;
  std::string why;  ///< what was wrong; empty if the candidate was right
  std::string time;

  [[nodiscard]] bool is_right() const noexcept { return why.empty(); }
  friend bool operator==(const Validated&, const Validated&) = default;
};

/// The results for one problem in one environment. Without a winner and without validated
/// candidates, an entry records a miss: a program ran this problem, and no cache had it.
struct Entry {
  Key key;
  Environment env;
  std::optional<Winner> winner;
  std::vector<Validated> validated;  ///< each candidate at most once

  [[nodiscard]] bool is_miss() const noexcept { return !winner && validated.empty(); }
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// Adds the results of `other`, which has the same key and environment. The better winner stays.
/// For each validated candidate the later result counts; if both have the same second, the one that
/// says "wrong" counts. A winner that was found wrong later is removed. (A winner that lost to it
/// earlier does not come back.)
void merge_into(Entry& entry, const Entry& other);

/// Whether one of these entries says that the winner of `entry` was later found wrong with the same
/// kernels and libraries.
bool failed_since(const Entry& entry, std::span<const Entry> entries, std::string* why = nullptr);
/// Among the entries of one key that `usable` accepts: the entry with the best winner that did not
/// fail later. Null if every entry was refused or failed.
const Entry* best_of(std::span<const Entry> entries,
                     const std::function<bool(const Entry&)>& usable);

/// Whether time `a` is later than `b`. A time more than a day ahead of the clock comes from a wrong
/// clock and counts as earlier than all other times, so that a measurement made now is preferred to
/// it.
bool is_later(std::string_view a, std::string_view b);

/// The line of an entry, without the newline. It begins with {"key":, the key's text and a comma.
/// Throws Error(invalid_argument) for an entry that a line cannot represent: a time that is NaN or
/// Inf, a key that is not a JSON object on one line, or two attributes with one name. Bytes that
/// are not UTF-8 are replaced by U+FFFD.
std::string to_line(const Entry& entry);

/// Parses the line of an entry, as to_line() writes it. Unknown fields are ignored, and the order
/// of fields does not matter. On failure `why` explains the error in a message for users: not JSON,
/// another schema version, a missing field. `newer`: whether the line has a later version of the
/// schema.
std::optional<Entry> from_line(std::string_view line, std::string& why, bool* newer = nullptr);

/// The text of a line's key, without parsing the line. Works for lines that begin as to_line()
/// writes them; empty for other lines.
std::string_view key_text(std::string_view line) noexcept;

}  // namespace switchback::autotune
