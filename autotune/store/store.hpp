// SPDX-License-Identifier: Apache-2.0
// Tuner: the files of a tuning cache, which many processes and machines share.
//
// <cache>/v1/<machine>.jsonl holds the entries of one kind of machine, one a line, and for each key
// and environment one. A writer takes an advisory lock on <machine>.jsonl.lock, reads the file,
// puts its entries in, writes <machine>.jsonl.tmp, syncs it and renames it over the file. So at any
// moment the file is whole, and readers need no lock. A line that cannot be read stays as it is.
//
// If the file is a symbolic link, all of this happens to the file that it points to. A process of
// root uses no file that another user could have put there: a link must belong to root, and a file
// to root or to the owner of its directory, who must be the only one that may write to that
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
/// The file of a kind of machine, by machine_name(), in a cache directory.
std::filesystem::path cache_file(const std::filesystem::path& cache, std::string_view machine);

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

/// What became of an entry that was put into a file.
enum class Added {
  added,  ///< the file says something new
  known,  ///< all of it was there already
  worse,  ///< another winner is preferred, and there is nothing else new
};

/// Puts entries into the file: merge_into() of those of the same key and environment. Creates the
/// directory and the file. The new file keeps the old one's owner and permissions; nothing is
/// written if nothing is new. Whatever happens, the file is the old one or the new one. Throws
/// Error(io_error), which names the file and what failed; Locked; and, before anything is written,
/// Error(invalid_argument) for an entry that to_line() refuses. Returns what became of each.
std::vector<Added> put_into(const std::filesystem::path& file, std::span<const Entry> entries,
                            const LockWait& wait = {});

/// The writer of a program that has other things to do. If another process holds the lock it waits
/// once for as long as `wait` says, keeps the entries and tries again with the next, without
/// waiting until it got the lock once. Entries that cannot be written for another reason are
/// dropped, and from then on all others.
class PatientWriter {
 public:
  /// `tell` is called with what failed; `consequence` ends the message: "…, and is not recorded".
  PatientWriter(std::filesystem::path file, std::string consequence,
                std::function<void(std::string)> tell);

  void add(std::vector<Entry> entries, const LockWait& wait);
  /// Tries once more to write what waits.
  void flush(LockWait wait);

  [[nodiscard]] std::int64_t written() const noexcept { return written_; }  ///< entries
  /// Entries that are known to this process alone, those that wait included.
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
