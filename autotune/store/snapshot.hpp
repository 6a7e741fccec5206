// SPDX-License-Identifier: Apache-2.0
// Tuner: the contents of a cache's files at the time of one read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autotune/store/record.hpp"
#include "autotune/store/sha256.hpp"

namespace switchback::autotune {

/// A line that was not read, and why. "tune.jsonl:17: the CRC does not match"
struct Warning {
  std::filesystem::path file;
  std::int64_t line = 0;  ///< from 1; 0: the file as a whole
  std::string what;
};
std::string describe(const Warning& warning);

/// The contents of a cache. Lines are kept as text; a record is parsed when it is asked for, so
/// that loading costs little more than reading.
class Snapshot {
 public:
  /// Adds the contents of a file. A missing file adds nothing; a file that cannot be read, a
  /// directory and a file of another kind add a warning. Lines that are torn, have a wrong CRC or
  /// another schema, or are not records are skipped and counted, each with a warning (only the
  /// first `max_warnings` of them). Blank lines are ignored.
  void add_file(const std::filesystem::path& file);

  /// The winners, fails and tombstones of a key in the order of the files; lines with the same hash
  /// but another key are dropped. Lines are parsed now: a line that is whole but not a record is
  /// left out, with a warning in `warnings` if that is given.
  [[nodiscard]] std::vector<Record> find(const Key& key,
                                         std::vector<Warning>* warnings = nullptr) const;
  /// The best winner, by better_winner(), among those `records` of a key that `usable` accepts.
  /// Records before a tombstone do not count, and neither does a winner that is followed by a fail
  /// of the same candidate in the same hard environment. Null if there is none.
  static const Record* best(std::span<const Record> records,
                            const std::function<bool(const Record&)>& usable);

  /// Calls with every record, samples included, in the order of the files. Parses as it goes, with
  /// warnings as in find().
  void for_each(const std::function<void(const Record&)>& visit,
                std::vector<Warning>* warnings = nullptr) const;
  /// The same of the records whose candidates are of this engine; the others are not parsed.
  void for_each_of_engine(std::string_view engine,
                          const std::function<void(const Record&)>& visit) const;
  /// The hashes of all keys that have winners, fails or tombstones, in order of appearance.
  [[nodiscard]] std::vector<std::string> key_hashes() const;

  /// How many keys that is.
  [[nodiscard]] std::size_t keys() const noexcept { return order_.size(); }
  /// Calls with each of these keys, except those without a line that can be parsed.
  void for_each_key(const std::function<void(const Key&)>& visit) const;

  /// How many lines are records, as far as can be known before they are parsed.
  [[nodiscard]] std::int64_t lines() const noexcept {
    return static_cast<std::int64_t>(lines_.size());
  }
  /// How many lines were not read, those of a newer schema included.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }
  [[nodiscard]] const std::vector<Warning>& warnings() const noexcept { return warnings_; }
  static constexpr std::size_t max_warnings = 20;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Line {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    std::uint32_t file = 0;
    std::uint32_t next = none;  ///< the next line of the same key, samples aside
  };
  struct Chain {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };
  struct DigestHash {
    std::size_t operator()(const Digest& digest) const noexcept {
      std::size_t value = 0;  // any part of a digest is as good as a hash of all
      std::memcpy(&value, digest.data(), sizeof(value));
      return value;
    }
  };

  [[nodiscard]] std::string_view text_of(const Line& line) const noexcept;
  bool parse_line(const Line& line, Record& record, std::vector<Warning>* warnings) const;
  void warn(const std::filesystem::path& file, std::int64_t line, std::string what);

  std::vector<std::string> texts_;  ///< of the files
  std::vector<std::filesystem::path> files_;
  std::vector<Line> lines_;
  std::unordered_map<Digest, Chain, DigestHash> by_key_;
  std::vector<Digest> order_;  ///< of the keys
  std::int64_t skipped_ = 0;
  std::vector<Warning> warnings_;
};

/// Whether time `a` of a record is later than `b`. A time more than a day ahead of the clock comes
/// from a wrong clock and counts as earlier than all others, so that a measurement made now is
/// preferred to it.
bool is_later(std::string_view a, std::string_view b);
/// The latest time that is believed: one day from now, in the format of records.
std::string latest_time();

/// Whether winner `a` is preferred to `b`: one that is not in_doubt(), then more effort, then the
/// later time by is_later(), then the smaller text.
bool better_winner(const Record& a, const Record& b);

}  // namespace switchback::autotune
