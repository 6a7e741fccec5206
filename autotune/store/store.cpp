// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "autotune/installed.hpp"
#include "autotune/store/file.hpp"
#include "autotune/store/snapshot.hpp"
#include "core/check.hpp"

namespace switchback::autotune {

namespace fs = std::filesystem;

namespace {

fs::path with_ending(const fs::path& file, std::string_view ending) {
  fs::path path = file;
  path += ending;
  return path;
}

bool same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The lock of a cache file, held until destruction. Open the file only after taking the lock: a
// file that was opened before may have been replaced.
class Lock {
 public:
  Lock(const fs::path& file, const LockWait& wait) : file_(take(file, wait)) {}
  // Unlocks explicitly, because closing the descriptor does not unlock if a process that was forked
  // in the meantime has it too.
  ~Lock() { ::flock(file_.fd(), LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static File take(const fs::path& file, const LockWait& wait);
  File file_;
};

// Waits for a lock by polling, because only a signal could end a wait in flock() early.
void wait_for_lock(int fd, const fs::path& path, const LockWait& wait) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::chrono::microseconds pause(200);
  bool told = false;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) fail_io(path, "it cannot be locked", errno);
    const Clock::duration waited = Clock::now() - start;
    if (waited >= wait.most || (wait.stop && wait.stop()))
      throw Locked(Status::io_error,
                   fmt::format("{}: another process holds this lock; waited {:.1f} s for it",
                               path.string(), std::chrono::duration<double>(waited).count()));
    if (!told && wait.tell && waited >= std::chrono::seconds(1)) {
      told = true;
      wait.tell(fmt::format("waiting for the lock {}, which another process holds (at most {} s)",
                            path.string(),
                            std::chrono::duration_cast<std::chrono::seconds>(wait.most).count()));
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, wait.most - waited));
    pause = std::min(2 * pause, std::chrono::microseconds(10'000));
  }
}

File Lock::take(const fs::path& file, const LockWait& wait) {
  const fs::path directory = directory_of(file);
  const fs::path path = with_ending(file, ".lock");
  // The cache may be removed during the wait. A lock on a deleted file does not exclude other
  // processes.
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) fail_io(directory, "the directory cannot be created", error.value());
    File lock = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW);
    const int reason = lock.is_open() ? 0 : errno;
    if (reason == ENOENT) continue;
    // Another user's lock file may be read-only; that is enough to lock it.
    if (reason == EACCES || reason == EPERM || reason == EROFS)
      lock = open_file(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
    if (!lock.is_open()) fail_io(path, "it cannot be opened", reason);
    wait_for_lock(lock.fd(), path, wait);
    struct stat held {};
    struct stat named {};
    if (::fstat(lock.fd(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        same_file(held, named))
      return lock;
  }
  core::fail(Status::io_error, "{}: it cannot be locked: other processes removed it {} times",
             path.string(), attempts);
}

// The file to read and write: `file` itself, or the file that it is a symbolic link to.
fs::path target_of(const fs::path& file) {
  fs::path target;
  const std::string why = resolve_links(file, target);
  if (!why.empty()) core::fail(Status::io_error, "{}: {}", file.string(), why);
  return target;
}

// Replaces `file` by a file with this text, atomically: at any moment either the old or the new
// file is there. The caller holds the lock.
void replace_locked(const fs::path& file, std::string_view text) {
  const fs::path temporary = with_ending(file, ".tmp");
  // A killed process may have left the temporary file. While the lock is held, no other process
  // writes it.
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT)
    fail_io(temporary, "it cannot be removed", errno);
  const File out = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!out.is_open()) fail_io(temporary, "it cannot be created", errno);
  struct Remover {
    const fs::path* path;
    ~Remover() {
      if (path != nullptr) ::unlink(path->c_str());
    }
  } remover{&temporary};
  // The new file keeps owner and permissions. Only root may change the owner. Other users may only
  // set one of their groups; if that fails, the file is rewritten all the same.
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0) {
    if (::fchown(out.fd(), status.st_uid, status.st_gid) != 0 &&
        ::fchown(out.fd(), static_cast<uid_t>(-1), status.st_gid) != 0 && ::geteuid() == 0)
      fail_io(temporary, "its owner cannot be set", errno);
    if (::fchmod(out.fd(), status.st_mode & 0777) != 0)
      fail_io(temporary, "its permissions cannot be set", errno);
  }
  const std::string error = write_and_sync(out, text);
  if (!error.empty())
    core::fail(Status::io_error, "{}: it cannot be written: {}", temporary.string(), error);
  if (::rename(temporary.c_str(), file.c_str()) != 0) fail_io(file, "it cannot be replaced", errno);
  remover.path = nullptr;
  sync_directory(directory_of(file));
}

// Computes the text of a file after new entries are added.
class Rewriting {
 public:
  explicit Rewriting(std::span<const Entry> entries) : entries_(entries) {
    for (const Entry& entry : entries)
      slots_of_[entry.key.json];
  }

  // Reads the lines of the existing file. `text` must outlive this object. Lines with the same key
  // and environment (for example after files were concatenated) are merged.
  void take(std::string_view text) {
    for_each_line(text, [&](std::int64_t, std::string_view line) {
      const auto slots = slots_of_.find(key_text(line));
      std::string why;
      std::optional<Entry> entry;
      if (slots != slots_of_.end()) entry = from_line(line, why);
      if (!entry)
        lines_.push_back({line, {}});
      else
        put(slots->second, std::move(*entry));
    });
  }

  // Adds the new entries, and returns for each whether it changed the file.
  std::vector<Added> put_all() {
    std::vector<Added> added;
    for (const Entry& entry : entries_) {
      Slots& slots = slots_of_.at(entry.key.json);
      const Entry* const known = find(slots, entry.env);
      const Entry before = known == nullptr ? Entry() : *known;
      const Entry& after = put(slots, entry);
      added.push_back(known == nullptr || !(after == before)           ? Added::added
                      : !entry.winner || entry.winner == before.winner ? Added::known
                                                                       : Added::worse);
    }
    return added;
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    for (const Line& line : lines_)
      (text += line.entry ? to_line(*line.entry) : std::string(line.text)) += '\n';
    return text;
  }

 private:
  struct Line {
    std::string_view text;       ///< the text of an unchanged line
    std::optional<Entry> entry;  ///< a parsed line, whose key gets new entries
  };
  using Slots = std::vector<std::size_t>;  ///< the lines of a key, one per environment

  Entry* find(const Slots& slots, const Environment& env) {
    for (const std::size_t slot : slots)
      if (lines_[slot].entry->env == env) return &*lines_[slot].entry;
    return nullptr;
  }
  const Entry& put(Slots& slots, Entry entry) {
    if (Entry* known = find(slots, entry.env)) {
      merge_into(*known, entry);
      return *known;
    }
    slots.push_back(lines_.size());
    return *lines_.emplace_back(Line{{}, std::move(entry)}).entry;
  }

  std::span<const Entry> entries_;
  std::vector<Line> lines_;
  std::unordered_map<std::string_view, Slots> slots_of_;
};

// put_into() without its check of the entries before it creates a directory. No work grows with the
// number of entries before the lock is held, because PatientWriter may try many times in vain.
std::vector<Added> put_under_lock(const fs::path& name, std::span<const Entry> entries,
                                  const LockWait& wait) {
  const fs::path file = target_of(name);
  const Lock lock(file, wait);
  std::string text;
  std::string why;
  if (read_trusted_file(file, text, why) == ReadResult::failed)
    core::fail(Status::io_error, "{}: {}", file.string(), why);
  Rewriting rewriting(entries);
  rewriting.take(text);
  std::vector<Added> added = rewriting.put_all();
  if (std::find(added.begin(), added.end(), Added::added) != added.end())
    replace_locked(file, rewriting.text());
  return added;
}

}  // namespace

fs::path default_cache_directory() {
  if (std::string own = from_environment("SWITCHBACK_TUNE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = from_environment("XDG_CACHE_HOME"); xdg.starts_with('/'))
    return fs::path(xdg) / "switchback";
  if (const std::string home = from_environment("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "switchback";
  return {};
}

fs::path cache_file(const fs::path& cache, std::string_view machine) {
  return cache / fmt::format("v{}", schema_version) / fmt::format("{}.jsonl", machine);
}

std::vector<Added> put_into(const fs::path& name, std::span<const Entry> entries,
                            const LockWait& wait) {
  for (const Entry& entry : entries)
    static_cast<void>(to_line(entry));  // throws for what a line cannot represent
  return put_under_lock(name, entries, wait);
}

PatientWriter::PatientWriter(fs::path file, std::string consequence,
                             std::function<void(std::string)> tell)
    : file_(std::move(file)), consequence_(std::move(consequence)), tell_(std::move(tell)) {}

void PatientWriter::add(std::vector<Entry> entries, const LockWait& wait) {
  if (failed_) {
    lost_ += std::ssize(entries);
    return;
  }
  waiting_.insert(waiting_.end(), std::make_move_iterator(entries.begin()),
                  std::make_move_iterator(entries.end()));
  flush(wait);
}

void PatientWriter::flush(LockWait wait) {
  if (waiting_.empty()) return;
  if (locked_out_) wait.most = {};
  constexpr std::ptrdiff_t most_waiting = 65536;
  try {
    put_under_lock(file_, waiting_, wait);
    written_ += std::ssize(waiting_);
    waiting_.clear();
    locked_out_ = false;
    error_.clear();
    return;
  } catch (const Locked& locked) {
    locked_out_ = true;
    error_ = locked.what();
    tell_(fmt::format("{}; the entries are kept in memory and will be written with the next ones",
                      error_));
    if (std::ssize(waiting_) <= most_waiting) return;
  } catch (const Error& error) {
    error_ = error.what();
  }
  failed_ = true;
  lost_ += std::ssize(waiting_);
  waiting_.clear();
  tell_(fmt::format("{}; {}", error_, consequence_));
}

}  // namespace switchback::autotune
