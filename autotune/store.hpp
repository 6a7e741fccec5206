// SPDX-License-Identifier: Apache-2.0
// Tuner: the files of a tuning cache, which many processes and machines share.
//
// <cache>/v1/<environment>/tune.jsonl holds records, one a line, appended only. Writers hold an
// advisory lock on tune.jsonl.lock beside it; readers never lock. Compaction writes a new file and
// renames it over the old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autotune/record.hpp"

namespace switchback::autotune {

/// The default cache directory: $SWITCHBACK_TUNE_CACHE, else $XDG_CACHE_HOME/switchback, else
/// $HOME/.cache/switchback; empty if none of them is set.
std::filesystem::path default_cache_directory();
/// The file of an environment (the hash of a machine's part of keys) below a cache directory.
std::filesystem::path cache_file(const std::filesystem::path& cache, std::string_view environment);

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
  /// first `max_warnings` in full).
  void add_file(const std::filesystem::path& file);

  /// The lines of winners, fails and tombstones of a key in the order of the files; those of equal
  /// hash and other text are dropped. Parsed now.
  [[nodiscard]] std::vector<Record> find(const Key& key) const;
  /// The winner of a key among `records` that `usable` accepts: most effort first, then the latest;
  /// nothing before a tombstone counts. Null if there is none.
  static const Record* best(std::span<const Record> records,
                            const std::function<bool(const Record&)>& usable);

  /// Calls with every record, samples included, in the order of the files; parses as it goes.
  void for_each(const std::function<void(const Record&)>& visit) const;
  /// The hashes of all keys that have winners, fails or tombstones, in order of appearance.
  [[nodiscard]] std::vector<std::string> key_hashes() const;

  [[nodiscard]] std::int64_t lines() const noexcept { return lines_; }
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }
  [[nodiscard]] const std::vector<Warning>& warnings() const noexcept { return warnings_; }
  static constexpr std::size_t max_warnings = 20;

 private:
  struct Line {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };
  std::vector<std::string> texts_;  ///< of the files
  std::vector<std::filesystem::path> files_;
  std::unordered_map<std::string, std::vector<Line>> by_key_;
  std::vector<std::string> order_;  ///< of the keys
  std::int64_t lines_ = 0;
  std::int64_t skipped_ = 0;
  std::vector<Warning> warnings_;
};

/// Appends to one file of a cache. Throws Error(io_error) that names the file and what failed.
class Store {
 public:
  explicit Store(std::filesystem::path file);

  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

  /// Appends the lines of these records as one write, under the lock, and syncs. Creates the
  /// directory and the file. A torn tail that a killed writer left is ended by a newline first. A
  /// write that comes to less than all (a full disk) is taken back. Nothing that was there before
  /// is lost, whatever happens.
  void append(std::span<const Record> records);

  /// Rewrites the file with what is worth keeping: of every key the winner, the fails of its
  /// candidates, and `keep_samples` samples; what tombstones bury goes. Lines that cannot be read
  /// are dropped unless they are of a newer schema. Under the lock: read, write to a temporary
  /// file, sync, rename, sync the directory. Returns how many lines were dropped.
  std::int64_t compact(bool keep_samples);

  /// Replaces the file by these records, in the same way.
  void replace(std::span<const Record> records);

 private:
  std::filesystem::path file_;
};

/// A conflict between caches: two winners of a key with other candidates.
struct Conflict {
  Record kept;
  Record dropped;
};
/// The records of several caches as one, in an order that does not depend on that of the arguments:
/// of every key the winner of most effort, then with the latest time, then with the smaller text;
/// samples and fails without repeats. Conflicts are added to `conflicts`.
std::vector<Record> merge(std::span<const std::vector<Record>> caches,
                          std::vector<Conflict>& conflicts);

}  // namespace switchback::autotune
