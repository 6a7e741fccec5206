// SPDX-License-Identifier: Apache-2.0
// Tuner: an entry of a tuning cache: what is known of one problem in one environment. In a file it
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

/// The version of the layout of lines and keys. Lines of other versions are not read.
inline constexpr int schema_version = 1;

/// A problem in a form that means the same on every machine: canonical JSON (flat, keys sorted, no
/// spaces, integers and strings only). Equal problems have equal text.
struct Key {
  std::string json;

  friend bool operator==(const Key&, const Key&) = default;
};

/// One way to compute a problem. Engine and attributes identify it.
struct CandidateText {
  std::string engine;
  /// Names and values of the configuration, in a fixed order: {"mc", 96}, …
  std::vector<std::pair<std::string, std::int64_t>> attributes;
  /// A library's own opaque form of the same (cuBLASLt: 64 bytes), in hexadecimal; may be empty.
  std::string algo_hex;

  friend bool operator==(const CandidateText& a, const CandidateText& b) noexcept {
    return a.engine == b.engine && a.attributes == b.attributes;
  }
};
/// "avx512_vnni mc=96 nc=512"
std::string describe(const CandidateText& candidate);

/// The software and hardware of a measurement. The hard members are compared before an entry is
/// used, if its engine depends on them; the others are only kept and shown.
struct Environment {
  std::string kernels;   ///< hard: version of this library's own kernels
  std::string cublaslt;  ///< hard for cuBLASLt's algorithms; empty: not there
  std::string onednn;    ///< hard for oneDNN's engines
  std::string openblas;  ///< hard for OpenBLAS
  std::string driver;    ///< this one and the next are not hard
  std::string product;   ///< "AMD EPYC 9R45", "NVIDIA H200"
  std::string tool;      ///< the library's version

  friend bool operator==(const Environment&, const Environment&) = default;
};
/// Whether all hard members are equal: results measured in one then hold in the other.
bool same_hard(const Environment& a, const Environment& b) noexcept;

/// How thoroughly a problem was measured. A winner is never replaced by one with less effort.
enum class Effort : int { cut = 0, quick = 1, normal = 2, thorough = 3 };
std::string_view effort_name(Effort effort) noexcept;

/// The fastest candidate, and how it was measured.
struct Winner {
  CandidateText candidate;
  measure::Stats stats;
  double default_median_ms = 0;  ///< of the configuration that runs when nothing is known
  Effort effort = Effort::normal;
  /// Rounds that other programs disturbed: those that were discarded, and those that remain; and
  /// all rounds that were timed.
  std::int64_t discarded_rounds = 0, disturbed_rounds = 0, timed_rounds = 0;
  std::string time;  ///< "2026-11-21T17:36:23Z"

  friend bool operator==(const Winner&, const Winner&) = default;
};
/// Whether other programs disturbed so much of a measurement that it is not to be trusted. Such a
/// winner is kept, shown and measured again, and never used.
bool in_doubt(const Winner& winner) noexcept;
/// Whether winner `a` is preferred to `b`: one that is not in_doubt(), then more effort, then the
/// later time by is_later(), then the smaller text.
bool better_winner(const Winner& a, const Winner& b);

/// A candidate that a check found wrong, or one that may fail and was found right.
struct Proven {
  CandidateText candidate;
  std::string why;  ///< what was wrong; empty: it was right
  std::string time;

  [[nodiscard]] bool is_right() const noexcept { return why.empty(); }
  friend bool operator==(const Proven&, const Proven&) = default;
};

/// Without a winner and proven candidates it is a miss: a problem that a program met and no cache
/// knew.
struct Entry {
  Key key;
  Environment env;
  std::optional<Winner> winner;
  std::vector<Proven> proven;  ///< each candidate once

  [[nodiscard]] bool is_miss() const noexcept { return !winner && proven.empty(); }
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// Adds to an entry what another of the same key and environment says: the better winner stays, of
/// each proven candidate the later word (of the same second: that it is wrong), and a winner that
/// was found wrong since goes. (One that lost to it earlier does not come back.)
void merge_into(Entry& entry, const Entry& other);

/// Whether one of these entries says that the winner of `entry` was found wrong since, by the same
/// kernels and libraries.
bool failed_since(const Entry& entry, std::span<const Entry> entries, std::string* why = nullptr);
/// Of entries of one key that `usable` accepts, the one with the best winner that did not fail
/// since; null if every one was refused or failed.
const Entry* best_of(std::span<const Entry> entries,
                     const std::function<bool(const Entry&)>& usable);

/// Whether time `a` is later than `b`. A time more than a day ahead of the clock comes from a wrong
/// clock and counts as earlier than all others, so that a measurement made now is preferred to it.
bool is_later(std::string_view a, std::string_view b);

/// The line of an entry, without the newline. It begins with {"key":, the key's text and a comma.
/// Throws Error(invalid_argument) for an entry that a line cannot represent: a time that is NaN or
/// Inf, a key that is not a JSON object on one line, an attribute named twice. Bytes of a text that
/// are not UTF-8 are replaced by U+FFFD.
std::string to_line(const Entry& entry);

/// The inverse; unknown fields are ignored, and the order of fields does not matter. On failure
/// `why` says what is wrong, in words for a person: not JSON, another schema version, a missing
/// field. `newer`: whether the version is one to come.
std::optional<Entry> from_line(std::string_view line, std::string& why, bool* newer = nullptr);

/// The text of a line's key, without parsing the line: of one that begins as to_line() writes it.
/// Empty for others.
std::string_view key_text(std::string_view line) noexcept;

}  // namespace switchback::autotune
