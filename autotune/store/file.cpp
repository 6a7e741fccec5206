// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <new>
#include <system_error>

#include "core/check.hpp"

namespace switchback::autotune {

namespace {

// The system's text for an error. (strerror() is not thread-safe.)
std::string error_text(int error) {
  return std::generic_category().message(error);
}

// While an object of this class exists, a write of this thread beyond the limit on file sizes fails
// without a signal. The class changes the signal mask of this thread only, because signal handlers
// belong to the whole process.
class FileSizeSignal {
 public:
  FileSizeSignal() {
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    ::sigemptyset(&pending);
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
    blocked_ = ::pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~FileSizeSignal() {
    if (!blocked_) return;
    const timespec now{};
    // A signal that was already pending remains pending.
    if (!was_pending_)
      while (::sigtimedwait(&signal_, nullptr, &now) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

 private:
  sigset_t signal_{};
  sigset_t before_{};
  bool was_pending_ = false;
  bool blocked_ = false;
};

}  // namespace

std::string resolve_links(const std::filesystem::path& path, std::filesystem::path& target) {
  constexpr int most_links = 40;  // the Linux kernel's limit
  target = path;
  for (int i = 0; i < most_links; ++i) {
    struct stat link {};
    if (::lstat(target.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return {};
    if (::geteuid() == 0 && link.st_uid != 0)
      return fmt::format(
          "{} is a symbolic link that belongs to user {}; root follows only links that belong to "
          "root",
          target.string(), link.st_uid);
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return "the symbolic link cannot be read: " + error.message();
    target = next.is_absolute() ? next : directory_of(target) / next;
  }
  return "there are too many symbolic links: " + error_text(ELOOP);
}

std::string untrusted(const File& file, const std::filesystem::path& path) {
  if (::geteuid() != 0) return {};
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return "its status cannot be read: " + error_text(errno);
  if (status.st_uid == 0) return {};
  struct stat directory {};
  if (::stat(directory_of(path).c_str(), &directory) == 0 && directory.st_uid == status.st_uid &&
      (directory.st_mode & S_IWOTH) == 0)
    return {};
  return fmt::format(
      "it belongs to user {}; root uses it only if its directory belongs to the same user and is "
      "not writable by others",
      status.st_uid);
}

void File::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

File open_file(const std::filesystem::path& path, int flags, unsigned mode) noexcept {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return File(fd);
  }
}

void fail_io(const std::filesystem::path& file, std::string_view what, int error) {
  core::fail(Status::io_error, "{}: {}: {}", file.string(), what, error_text(error));
}

namespace {

// Opens a file to read it. The result tells a missing file from one that cannot be opened.
ReadResult open_to_read(const std::filesystem::path& path, int flags, File& file,
                        std::string& why) {
  // O_NONBLOCK, because opening a pipe would wait for a writer.
  file = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | flags);
  if (file.is_open()) return ReadResult::ok;
  if (errno == ENOENT) return ReadResult::missing;
  why = "it cannot be opened: " + error_text(errno);
  return ReadResult::failed;
}

ReadResult read_open_file(const File& file, std::string& text, std::string& why) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) {
    why = "its status cannot be read: " + error_text(errno);
    return ReadResult::failed;
  }
  if (!S_ISREG(status.st_mode)) {
    why = S_ISDIR(status.st_mode) ? "it is a directory" : "it is not a regular file";
    return ReadResult::failed;
  }
  if (status.st_size > max_file_bytes) {
    why = fmt::format("it has {} bytes; a cache has at most {}", status.st_size, max_file_bytes);
    return ReadResult::failed;
  }
  try {
    text.resize(static_cast<std::size_t>(status.st_size));
  } catch (const std::bad_alloc&) {
    why = fmt::format("there is not enough memory for its {} bytes", status.st_size);
    return ReadResult::failed;
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.fd(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      why = "it cannot be read: " + error_text(errno);
      text.clear();
      return ReadResult::failed;
    }
    if (count == 0) break;  // another program truncated it
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return ReadResult::ok;
}

}  // namespace

ReadResult read_file(const std::filesystem::path& path, std::string& text, std::string& why) {
  File file(-1);
  const ReadResult opened = open_to_read(path, 0, file, why);
  return opened == ReadResult::ok ? read_open_file(file, text, why) : opened;
}

ReadResult read_trusted_file(const std::filesystem::path& path, std::string& text,
                             std::string& why) {
  std::filesystem::path target;
  why = resolve_links(path, target);
  if (!why.empty()) return ReadResult::failed;
  File file(-1);
  const ReadResult opened = open_to_read(target, O_NOFOLLOW, file, why);
  if (opened != ReadResult::ok) return opened;
  why = untrusted(file, target);
  return why.empty() ? read_open_file(file, text, why) : ReadResult::failed;
}

std::string write_and_sync(const File& file, std::string_view bytes) {
  const FileSizeSignal held_back;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.fd(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error_text(errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  while (::fsync(file.fd()) != 0) {
    // Some file systems do not support fsync(); that is not an error.
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) break;
    if (errno != EINTR) return "it cannot be synced: " + error_text(errno);
  }
  return {};
}

void sync_directory(const std::filesystem::path& directory) {
  const File file = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) return;  // a directory can be writable without being readable
  while (::fsync(file.fd()) != 0) {
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) break;
    if (errno != EINTR) fail_io(directory, "the directory cannot be synced", errno);
  }
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace switchback::autotune
