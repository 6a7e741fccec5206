// SPDX-License-Identifier: Apache-2.0
// Tuner: the files of a tuning cache, which many processes and machines share.
//
// <cache>/v1/<environment>/tune.jsonl holds records, one per line, and is only appended to. Writers
// hold an advisory lock on tune.jsonl.lock beside it; readers never lock. Compaction writes a new
// file and renames it over the old one, with the old one's owner and permissions.
//
// If tune.jsonl is a symbolic link, all of this happens to the file that it points to. A process of
// root uses no file that another user could have put there: a link must belong to root, and a file
// to root or to the owner of its directory, who must be the only one that may write to that
// directory (see untrusted() in file.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "autotune/store/merge.hpp"
#include "autotune/store/record.hpp"
#include "autotune/store/snapshot.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {

/// The default cache directory: $SWITCHBACK_TUNE_CACHE, else $XDG_CACHE_HOME/switchback, else
/// $HOME/.cache/switchback; empty if none of them is set. As XDG requires, a relative path in
/// $XDG_CACHE_HOME is ignored.
std::filesystem::path default_cache_directory();
/// The file of an environment (the hash of a machine's part of keys) below a cache directory.
std::filesystem::path cache_file(const std::filesystem::path& cache, std::string_view environment);

/// How long a writer waits for the lock that another process holds.
struct LockWait {
  std::chrono::milliseconds most = std::chrono::seconds(30);
  std::function<void(const std::string&)> tell;  ///< called once, after a second: what it waits for
  std::function<bool()> stop;                    ///< called while waiting; true ends the wait
};

/// Another process holds the lock, and the time to wait is over. Nothing was changed.
class Locked : public Error {
 public:
  using Error::Error;
};

/// Writes one file of a cache. Throws Error(io_error), which names the file and what failed;
/// Locked; and, before anything is written, Error(invalid_argument) for a record that to_line()
/// refuses.
class Store {
 public:
  explicit Store(std::filesystem::path file, LockWait wait = {});
  void set_wait(LockWait wait) { wait_ = std::move(wait); }

  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

  /// Appends the lines of these records with one write, under the lock, and syncs. Creates the
  /// directory and the file. If a killed writer left a torn line, it is ended by a newline first. A
  /// write that was incomplete (a full disk) is undone. Whatever happens, nothing that was in the
  /// file is lost. Without records it does nothing.
  void append(std::span<const Record> records);

  /// Rewrites the file with the lines worth keeping: for every key and hard environment
  /// (same_hard()) the winner, the last fail of every candidate, and, if `keep_samples`, each
  /// sample once. Lines before a tombstone are dropped; the last tombstone of a key stays, because
  /// it applies to other files too. Lines that cannot be read are dropped unless they have a newer
  /// schema. Lines that stay keep their bytes and their order. Under the lock: read, write a
  /// temporary file, sync, rename, sync the directory. Returns the number of dropped lines; if
  /// there are none, or there is no file, nothing is written.
  std::int64_t compact(bool keep_samples);

  /// Replaces the file by these records, in the same way. Lines of a newer schema stay.
  void replace(std::span<const Record> records);

  /// Replaces the file by what `change` makes of its records, in the same way. It keeps what others
  /// append meanwhile, which reading, changing and calling replace() would not. `change` must not
  /// write to the same file; if it throws, the file is unchanged.
  void update(const std::function<std::vector<Record>(std::vector<Record> records)>& change);

 private:
  std::filesystem::path file_;
  LockWait wait_;
};

}  // namespace switchback::autotune
