// SPDX-License-Identifier: Apache-2.0
// Tuner: the files of a tuning cache, which many processes and machines share.
//
// <cache>/v1/<environment>/tune.jsonl holds records, one a line, appended only. Writers hold an
// advisory lock on tune.jsonl.lock beside it; readers never lock. Compaction writes a new file and
// renames it over the old one, with the owner and the permissions of the old one.
//
// Where tune.jsonl is a symbolic link, all of this is done to the file that it names and beside
// that one. A process of root uses no file that another user could have put there: a link must be
// root's, and a file root's or of its directory's owner, who must be the only one that may write to
// that directory (see untrusted() in file.hpp).
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
/// $HOME/.cache/switchback; empty if none of them is set. As XDG demands, a relative path in its
/// variable counts as none.
std::filesystem::path default_cache_directory();
/// The file of an environment (the hash of a machine's part of keys) below a cache directory.
std::filesystem::path cache_file(const std::filesystem::path& cache, std::string_view environment);

/// How long a writer waits for the lock that another process holds.
struct LockWait {
  std::chrono::milliseconds most = std::chrono::seconds(30);
  std::function<void(const std::string&)> tell;  ///< once, after a second, with what it waits for
  std::function<bool()> stop;                    ///< asked meanwhile; true ends the wait
};

/// The lock is held by another process, and the wait for it is over. Nothing was changed.
class Locked : public Error {
 public:
  using Error::Error;
};

/// Appends to one file of a cache. Throws Error(io_error) that names the file and what failed,
/// Locked, and Error(invalid_argument) for a record that to_line() refuses, before anything is
/// touched.
class Store {
 public:
  explicit Store(std::filesystem::path file, LockWait wait = {});
  void set_wait(LockWait wait) { wait_ = std::move(wait); }

  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

  /// Appends the lines of these records as one write, under the lock, and syncs. Creates the
  /// directory and the file. A torn tail that a killed writer left is ended by a newline first. A
  /// write that comes to less than all (a full disk) is taken back. Nothing that was there before
  /// is lost, whatever happens. No records: nothing is done.
  void append(std::span<const Record> records);

  /// Rewrites the file with what is worth keeping: of every key and hard environment (same_hard())
  /// the winner, of every candidate there its last fail, and the samples if `keep_samples`, each
  /// once. What a tombstone buries goes; the last tombstone of a key stays, for it also speaks of
  /// other files. Lines that cannot be read are dropped unless they are of a newer schema. Lines
  /// that stay keep their bytes and their order. Under the lock: read, write to a temporary file,
  /// sync, rename, sync the directory. Returns how many lines were dropped; without any, and
  /// without a file, nothing is written.
  std::int64_t compact(bool keep_samples);

  /// Replaces the file by these records, in the same way. Lines of a newer schema stay.
  void replace(std::span<const Record> records);

  /// Replaces the file by what `change` makes of its records, in the same way. Unlike what is read,
  /// changed and given to replace(), this keeps what others append meanwhile. `change` must not
  /// write to the same file; if it throws, the file is as it was.
  void update(const std::function<std::vector<Record>(std::vector<Record> records)>& change);

 private:
  std::filesystem::path file_;
  LockWait wait_;
};

}  // namespace switchback::autotune
