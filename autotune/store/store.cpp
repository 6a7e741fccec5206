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
#include <utility>

#include "autotune/installed.hpp"
#include "autotune/store/compaction.hpp"
#include "autotune/store/file.hpp"
#include "autotune/store/line.hpp"
#include "core/check.hpp"

namespace switchback::autotune {

namespace fs = std::filesystem;

namespace {

fs::path beside(const fs::path& file, std::string_view ending) {
  fs::path path = file;
  path += ending;
  return path;
}

bool same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The lock of a cache file, held until destruction. Open the file only after taking the lock: a
// file opened before may have been replaced by a compaction.
class Lock {
 public:
  Lock(const fs::path& file, const LockWait& wait) : file_(take(file, wait)) {}
  // Unlocks instead of only closing: a process forked meanwhile has the descriptor too.
  ~Lock() { ::flock(file_.fd(), LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  static File take(const fs::path& file, const LockWait& wait);
  File file_;
};

// Polls, because a wait in flock() cannot be ended without a signal.
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
      wait.tell(fmt::format("waiting for another process, which holds {} (at most {} s)",
                            path.string(),
                            std::chrono::duration_cast<std::chrono::seconds>(wait.most).count()));
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, wait.most - waited));
    pause = std::min(2 * pause, std::chrono::microseconds(10'000));
  }
}

File Lock::take(const fs::path& file, const LockWait& wait) {
  const fs::path directory = directory_of(file);
  const fs::path path = beside(file, ".lock");
  // The cache may be removed while we wait; a lock on a file without a name excludes nobody.
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
  core::fail(Status::io_error, "{}: it cannot be locked: it was removed {} times meanwhile",
             path.string(), attempts);
}

// The file that is read and written where `file` may be a link to it.
fs::path target_of(const fs::path& file) {
  fs::path target;
  const std::string why = resolve_links(file, target);
  if (!why.empty()) core::fail(Status::io_error, "{}: {}", file.string(), why);
  return target;
}

// The text of the file; false if there is none. Under the lock.
bool read_locked(const fs::path& file, std::string& text) {
  std::string why;
  switch (read_trusted_file(file, text, why)) {
    case ReadResult::ok:
      return true;
    case ReadResult::missing:
      return false;
    case ReadResult::failed:
      break;
  }
  core::fail(Status::io_error, "{}: {}", file.string(), why);
}

// Replaces `file` by one with this text, atomically: at any moment either the old or the new file
// is there. Under the lock.
void replace_locked(const fs::path& file, std::string_view text) {
  const fs::path temporary = beside(file, ".tmp");
  // A killed process may have left the temporary file; under the lock nobody is writing it.
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
  // The new file keeps owner and permissions. Only root may change the owner; others may only set
  // one of their own groups, and rewrite the file even if that fails.
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

std::string lines_of(std::span<const Record> records) {
  std::string lines;
  for (const Record& record : records) {
    lines += to_line(record);
    lines += '\n';
  }
  return lines;
}

// The lines of a text that are of a newer schema, as they are.
std::string newer_lines(std::string_view text) {
  std::string lines;
  for_each_line(text, [&](std::int64_t, std::string_view line, bool ended) {
    if (inspect(line, ended).kind != LineKind::newer) return;
    lines += line;
    lines += '\n';
  });
  return lines;
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

fs::path cache_file(const fs::path& cache, std::string_view environment) {
  return cache / fmt::format("v{}", schema_version) / environment / "tune.jsonl";
}

Store::Store(fs::path file, LockWait wait) : file_(std::move(file)), wait_(std::move(wait)) {}

void Store::append(std::span<const Record> records) {
  if (records.empty()) return;
  const std::string text = '\n' + lines_of(records);
  const fs::path file = target_of(file_);
  const Lock lock(file, wait_);
  const File data = open_file(file, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW);
  if (!data.is_open()) fail_io(file, "it cannot be opened", errno);
  struct stat status {};
  if (::fstat(data.fd(), &status) != 0) fail_io(file, "it cannot be examined", errno);
  if (!S_ISREG(status.st_mode))
    core::fail(Status::io_error, "{}: it is no regular file", file.string());
  if (const std::string why = untrusted(data, file); !why.empty())
    core::fail(Status::io_error, "{}: {}", file.string(), why);
  char last = '\n';
  if (status.st_size > 0 && ::pread(data.fd(), &last, 1, status.st_size - 1) != 1)
    fail_io(file, "its end cannot be read", errno);

  // The newline that ends a torn tail is part of the one write.
  const std::string_view bytes = std::string_view(text).substr(last == '\n' ? 1 : 0);
  const std::string error = write_and_sync(data, bytes);
  if (!error.empty()) {
    const bool restored = ::ftruncate(data.fd(), status.st_size) == 0;
    core::fail(Status::io_error, "{}: {} records cannot be appended: {}{}", file.string(),
               records.size(), error, restored ? "" : "; and what was written cannot be cut off");
  }
  if (status.st_size == 0) sync_directory(directory_of(file));
}

std::int64_t Store::compact(bool keep_samples) {
  std::error_code ignored;
  if (!fs::exists(file_, ignored)) return 0;
  const fs::path file = target_of(file_);
  const Lock lock(file, wait_);
  std::string text;
  if (!read_locked(file, text)) return 0;
  const Compaction kept = worth_keeping(text, keep_samples);
  if (kept.dropped > 0) replace_locked(file, kept.text);
  return kept.dropped;
}

void Store::replace(std::span<const Record> records) {
  std::string lines = lines_of(records);
  const fs::path file = target_of(file_);
  const Lock lock(file, wait_);
  std::string text;
  if (read_locked(file, text)) lines += newer_lines(text);
  replace_locked(file, lines);
}

void Store::update(const std::function<std::vector<Record>(std::vector<Record> records)>& change) {
  const fs::path file = target_of(file_);
  const Lock lock(file, wait_);
  std::string text;
  read_locked(file, text);
  std::vector<Record> records;
  for_each_line(text, [&](std::int64_t, std::string_view line, bool) {
    std::string why;
    Record record;
    if (parse(line, record, why) == LineKind::record) records.push_back(std::move(record));
  });
  replace_locked(file, lines_of(change(std::move(records))) + newer_lines(text));
}

}  // namespace switchback::autotune
