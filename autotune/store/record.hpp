// SPDX-License-Identifier: Apache-2.0
// Tuner: the records of a tuning cache: one JSON object per line, each checked by its own CRC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure/statistics.hpp"

namespace switchback::autotune {

/// The version of the layout of lines and keys. Lines of other versions are not read.
inline constexpr int schema_version = 1;
/// A longer line was not written by this program, and is not read.
inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// A problem in a form that means the same on every machine: canonical JSON (keys sorted, no
/// spaces, integers and strings only) and its SHA-256. Equal problems have equal text.
struct Key {
  std::string json;
  std::string sha;  ///< 64 lowercase hexadecimal digits

  friend bool operator==(const Key& a, const Key& b) noexcept { return a.json == b.json; }
};
/// Takes canonical text.
Key make_key(std::string canonical_json);

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

/// The software and hardware that a line was measured with. The hard members are compared before a
/// line is used, if its engine depends on them; the others are only kept and shown.
struct Environment {
  std::string kernels;   ///< hard: version of this library's own kernels
  std::string cublaslt;  ///< hard for cuBLASLt's algorithms; empty: not there
  std::string onednn;    ///< hard for oneDNN's engines
  std::string openblas;  ///< hard for OpenBLAS
  std::string driver;    ///< from here on provenance
  std::string product;   ///< "AMD EPYC 9R45", "NVIDIA H200"
  std::string tool;      ///< the library's version

  friend bool operator==(const Environment&, const Environment&) = default;
};
/// Whether all hard members are equal: results measured in one then hold in the other.
bool same_hard(const Environment& a, const Environment& b) noexcept;

/// A miss is a problem that a program met and no cache knew; `tune --recorded` reads misses.
enum class RecordType { sample, winner, fail, tombstone, miss };
std::string_view record_type_name(RecordType type) noexcept;

/// How thoroughly a problem was measured. A winner is never replaced by one with less effort.
enum class Effort : int { cut = 0, quick = 1, normal = 2, thorough = 3 };
std::string_view effort_name(Effort effort) noexcept;

struct Record {
  RecordType type = RecordType::sample;
  Key key;
  Environment env;
  /// Empty in a miss, and in a tombstone, which says that its key is forgotten.
  CandidateText candidate;
  bool ok = true;
  std::string why;  ///< of a fail: what was wrong
  measure::Stats stats;
  double default_median_ms = 0;  ///< of the configuration that runs when nothing is known
  Effort effort = Effort::normal;
  bool budget_hit = false;
  /// Rounds that other programs disturbed: those that were discarded, and those that remain.
  std::int64_t discarded_rounds = 0, disturbed_rounds = 0;
  /// All rounds that were timed, where some were disturbed; 0: not known (older lines).
  std::int64_t timed_rounds = 0;
  std::string time;  ///< "2026-11-21T17:36:23Z"

  friend bool operator==(const Record&, const Record&) = default;
};

/// Whether other programs disturbed so much of a measurement that it is not to be trusted. Such a
/// winner is kept, shown and measured again, and never used.
bool in_doubt(const Record& record) noexcept;

/// The line of a record, with its CRC, without the newline. Throws Error(invalid_argument) for a
/// record that a line cannot represent: a time that is NaN or Inf, a key that is not a JSON object
/// on one line or does not match its hash, an attribute named twice, more than max_line_bytes.
/// Bytes of a text that are not UTF-8 are replaced by U+FFFD.
std::string to_line(const Record& record);

/// The inverse. Unknown fields are ignored, and the order of fields does not matter, except that
/// the CRC is the last. On failure `why` says what is wrong, in words for a person: not JSON,
/// another schema version, a CRC that does not match, a missing field, a hash that does not match
/// the key.
std::optional<Record> from_line(std::string_view line, std::string& why);

/// Whether the line is whole: it ends with the CRC of everything before it, `,"crc32":"xxxxxxxx"}`.
/// Much faster than from_line().
bool crc_matches(std::string_view line) noexcept;

}  // namespace switchback::autotune
