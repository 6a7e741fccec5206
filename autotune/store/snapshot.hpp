// SPDX-License-Identifier: Apache-2.0
// Tuner: what the files of a cache hold, as one read found it.
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

/// What one read of a file found. Lines are kept as text; a record is parsed when it is asked for,
/// so that loading costs little more than reading.
class Snapshot {
 public:
  /// Adds what a file holds. A missing file adds nothing; one that cannot be read, that is a
  /// directory or that holds something else adds a warning. Lines of a torn tail, with a wrong CRC,
  /// of another schema or that are no records are skipped and counted, each with a warning (the
  /// first `max_warnings`; the others are counted alone). Blank lines are nothing.
  void add_file(const std::filesystem::path& file);

  /// The lines of winners, fails and tombstones of a key in the order of the files; those of equal
  /// hash and other text are dropped. Parsed now: a line that is whole and still no record is left
  /// out, with a warning in `warnings` if that is given.
  [[nodiscard]] std::vector<Record> find(const Key& key,
                                         std::vector<Warning>* warnings = nullptr) const;
  /// The winner of a key among `records` that `usable` accepts: the best by better_winner().
  /// Nothing before a tombstone counts, and no winner that a fail of the same candidate and the
  /// same hard environment follows. Null if there is none.
  static const Record* best(std::span<const Record> records,
                            const std::function<bool(const Record&)>& usable);

  /// Calls with every record, samples included, in the order of the files; parses as it goes, with
  /// warnings as find().
  void for_each(const std::function<void(const Record&)>& visit,
                std::vector<Warning>* warnings = nullptr) const;
  /// The hashes of all keys that have winners, fails or tombstones, in order of appearance.
  [[nodiscard]] std::vector<std::string> key_hashes() const;

  /// How many keys that is.
  [[nodiscard]] std::size_t keys() const noexcept { return order_.size(); }
  /// Calls with each of these keys; those without a line that can be parsed are left out.
  void for_each_key(const std::function<void(const Key&)>& visit) const;

  /// How many lines are records, as far as is known before they are parsed.
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

/// Whether time `a` of a record is later than `b`. One that is more than a day ahead of the clock
/// is of a clock that was wrong, and earlier than all that are not: what is measured now goes
/// before it.
bool is_later(std::string_view a, std::string_view b);
/// The latest time that is taken for one: a day from now, in the form of a record's.
std::string latest_time();

/// Whether winner `a` is to be taken rather than `b`: more effort, then the later time as of
/// is_later(), then the smaller text.
bool better_winner(const Record& a, const Record& b);

}  // namespace switchback::autotune
