// SPDX-License-Identifier: Apache-2.0
// Tuner: the files of a tuning cache, which many processes and machines share.
//
// <cache>/v1/<machine>.jsonl holds the entries of one kind of machine: one entry per line, and one
// line per key and environment. A writer takes an advisory lock on <machine>.jsonl.lock, reads the
// file, adds its entries, writes <machine>.jsonl.tmp, syncs it and renames it over the file. So the
// file is complete at any moment, and readers need no lock. A line that cannot be read stays
// unchanged.
//
// If the file is a symbolic link, all of this happens to the file that it points to. A process of
// root does not use a file that another user could have put there. A link must belong to root. A
// file must belong to root or to the owner of its directory, and only that owner may write to the
// directory (see untrusted() in file.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "autotune/store/entry.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {

/// The default cache directory: $SWITCHBACK_TUNE_CACHE, else $XDG_CACHE_HOME/switchback, else
/// $HOME/.cache/switchback; empty if none of them is set. As XDG requires, a relative path in
/// $XDG_CACHE_HOME is ignored.
std::filesystem::path default_cache_directory();
/// The path of the file for a kind of machine in a cache directory. `machine` is a machine_name().
std::filesystem::path cache_file(const std::filesystem::path& cache, std::string_view machine);

/// How long a writer waits for a lock that another process holds.
struct LockWait {
  std::chrono::milliseconds most = std::chrono::seconds(30);
  /// Called once, after a second of waiting, with a message that names the lock.
  std::function<void(const std::string&)> tell;
  std::function<bool()> stop;  ///< called while waiting; returns true to give up
};

/// Thrown if another process still holds the lock when the time limit has passed. Nothing was
/// changed.
class Locked : public Error {
 public:
  using Error::Error;
};

/// The result of adding an entry to a file.
enum class Added {
  added,  ///< the file has new information
  known,  ///< the file had all of the entry already
  worse,  ///< the file's winner is preferred, and nothing else is new
};

/// Adds entries to the file. An entry with the key and environment of an old one is merged into it
/// by merge_into(). Creates the directory and the file if necessary. The new file keeps the old
/// one's owner and permissions. Nothing is written if nothing is new. On failure, the file is
/// either the old one or the new one. Throws Error(io_error), which names the file and what failed,
/// and Locked. Before anything is written, throws Error(invalid_argument) for an entry that
/// to_line() refuses. Returns the result for each entry.
std::vector<Added> put_into(const std::filesystem::path& file, std::span<const Entry> entries,
                            const LockWait& wait = {});

/// A writer for programs that should not be delayed. If another process holds the lock, it waits
/// once for as long as `wait` says and keeps the entries. It tries again with each further call,
/// without waiting until it has got the lock once. Entries that cannot be written for another
/// reason are dropped, and so are all later ones.
class PatientWriter {
 public:
  /// `tell` is called with a message that says what failed. `consequence` is its last part.
  PatientWriter(std::filesystem::path file, std::string consequence,
                std::function<void(std::string)> tell);

  void add(std::vector<Entry> entries, const LockWait& wait);
  /// Tries once more to write the waiting entries.
  void flush(LockWait wait);

  /// The number of entries that were written to the file.
  [[nodiscard]] std::int64_t written() const noexcept { return written_; }
  /// The number of entries that only this process has, including those that wait.
  [[nodiscard]] std::int64_t lost() const noexcept { return lost_ + std::ssize(waiting_); }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  std::filesystem::path file_;
  std::string consequence_;
  std::function<void(std::string)> tell_;
  std::vector<Entry> waiting_;
  bool locked_out_ = false;
  bool failed_ = false;
  std::int64_t written_ = 0;
  std::int64_t lost_ = 0;
  std::string error_;
};

}  // namespace switchback::autotune
