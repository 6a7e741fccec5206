// SPDX-License-Identifier: Apache-2.0
// Tuner: what a tuning cache holds: one JSON object a line, each whole, checked by its own CRC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autotune/statistics.hpp"

namespace switchback::autotune {

/// The layout of lines and keys. A line of another version is not read.
inline constexpr int schema_version = 1;
/// A line that is longer is not ours, whatever it holds.
inline constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

/// What a problem is, in words that mean the same on every machine: canonical JSON (keys sorted, no
/// spaces, integers and strings only) and its SHA-256. Equal problems have equal text.
struct Key {
  std::string json;
  std::string sha;  ///< 64 lowercase hexadecimal digits

  friend bool operator==(const Key& a, const Key& b) noexcept { return a.json == b.json; }
};
/// Takes canonical text.
Key make_key(std::string canonical_json);

/// One way to compute a problem. What identifies it is engine and attributes.
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

/// With what a line was measured. The hard ones are compared before a line is used, as far as its
/// engine depends on them; the others are kept and shown.
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
/// Whether all the hard ones are equal: what was found out under one then holds under the other.
bool same_hard(const Environment& a, const Environment& b) noexcept;

/// A miss is a problem that a program ran into and no cache knew: what `tune` can be given.
enum class RecordType { sample, winner, fail, tombstone, miss };
std::string_view record_type_name(RecordType type) noexcept;

/// How thoroughly a problem was measured. A winner is never replaced by one of less effort.
enum class Effort : int { cut = 0, quick = 1, normal = 2, thorough = 3 };
std::string_view effort_name(Effort effort) noexcept;

struct Record {
  RecordType type = RecordType::sample;
  Key key;
  Environment env;
  /// Empty in a tombstone, which says that its key is to be forgotten, and in a miss.
  CandidateText candidate;
  bool ok = true;
  std::string why;  ///< of a fail: what was wrong
  Stats stats;
  double default_median_ms = 0;  ///< of the configuration that runs when nothing is known
  Effort effort = Effort::normal;
  bool budget_hit = false;
  std::string time;  ///< "2026-11-21T17:36:23Z"

  friend bool operator==(const Record&, const Record&) = default;
};

/// The line of a record, with its CRC, without the newline. Throws Error(invalid_argument) for what
/// no line can say: a time that is NaN or Inf, a key that is no JSON object on one line or not the
/// one that was hashed, an attribute named twice, more than max_line_bytes. Bytes of a text that
/// are not UTF-8 are replaced by U+FFFD.
std::string to_line(const Record& record);

/// The inverse. Fields it does not know are ignored, and so is the order of those it does, except
/// that the CRC is the last. On failure `why` says what is wrong, in words for a person: not JSON,
/// another schema version, a CRC that does not match, a missing field, a hash that is not the
/// key's.
std::optional<Record> from_line(std::string_view line, std::string& why);

/// Whether the line is whole: it ends with the CRC of what is before that, `,"crc32":"xxxxxxxx"}`.
/// Much faster than from_line().
bool crc_matches(std::string_view line) noexcept;

}  // namespace switchback::autotune
