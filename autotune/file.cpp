// SPDX-License-Identifier: Apache-2.0
#include "autotune/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "core/check.hpp"

namespace switchback::autotune {

namespace {

// strerror() is not safe among threads.
std::string error_text(int error) {
  return std::generic_category().message(error);
}

}  // namespace

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

ReadResult read_file(const std::filesystem::path& path, std::string& text, std::string& why) {
  // Opening a pipe would wait for somebody to write into it.
  const File file = open_file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!file.is_open()) {
    if (errno == ENOENT) return ReadResult::missing;
    why = "it cannot be opened: " + error_text(errno);
    return ReadResult::failed;
  }
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) {
    why = "it cannot be examined: " + error_text(errno);
    return ReadResult::failed;
  }
  if (!S_ISREG(status.st_mode)) {
    why = S_ISDIR(status.st_mode) ? "it is a directory" : "it is no regular file";
    return ReadResult::failed;
  }
  if (status.st_size > max_file_bytes) {
    why = fmt::format("it has {} bytes; a cache has at most {}", status.st_size, max_file_bytes);
    return ReadResult::failed;
  }
  try {
    text.resize(static_cast<std::size_t>(status.st_size));
  } catch (const std::bad_alloc&) {
    why = fmt::format("there is no memory for its {} bytes", status.st_size);
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
    if (count == 0) break;  // a writer has taken back what it could not write whole
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return ReadResult::ok;
}

std::string write_and_sync(const File& file, std::string_view bytes) {
  ssize_t count = 0;
  do {
    count = ::write(file.fd(), bytes.data(), bytes.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) return error_text(errno);
  if (static_cast<std::size_t>(count) != bytes.size())
    return fmt::format("only {} of {} bytes fit (the disk is full, or a limit is reached)", count,
                       bytes.size());
  while (::fsync(file.fd()) != 0) {
    // Some file systems have nothing to sync.
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) break;
    if (errno != EINTR) return "it cannot be synced: " + error_text(errno);
  }
  return {};
}

void sync_directory(const std::filesystem::path& directory) {
  const File file = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (!file.is_open()) return;  // one may write in a directory that one must not read
  while (::fsync(file.fd()) != 0) {
    if (errno == EINVAL || errno == EROFS || errno == ENOTSUP) break;
    if (errno != EINTR) fail_io(directory, "the directory cannot be synced", errno);
  }
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace switchback::autotune
