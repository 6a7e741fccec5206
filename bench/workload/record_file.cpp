// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/check.hpp"

namespace switchback::bench {

namespace {

std::string read_all(int fd, const std::string& path) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      core::fail(Status::io_error, "{}: cannot be read: {}", path, std::strerror(errno));
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string read_file(const std::string& path) {
  if (path == "-") return read_all(STDIN_FILENO, "standard input");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) core::fail(Status::io_error, "{}: cannot be read: {}", path, std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  return read_all(fd, path);
}

void LineFile::fail(std::string_view what, int error) const {
  core::fail(Status::io_error, "{}: {}: {}", path_ == "-" ? "standard output" : path_, what,
             std::strerror(error));
}

LineFile::LineFile(const std::string& path, OpenMode mode, std::string_view line_start,
                   const CheckLine& check)
    : path_(path) {
  if (path == "-") {
    fd_ = STDOUT_FILENO;
    struct stat status {};
    // If standard output is redirected to a file, that file belongs to the shell. It is neither
    // checked nor repaired; lines are only appended.
    if (::fstat(fd_, &status) != 0) fail("cannot be written", errno);
    return;
  }
  // The file is opened without O_TRUNC, so that nothing is changed until its contents are known to
  // be records.
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0 && (errno == EACCES || errno == EINVAL || errno == ENXIO))
    // A device or pipe that can only be written.
    fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd_ < 0) fail("cannot be opened for writing", errno);
  owned_ = true;
  try {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail("cannot be examined", errno);
    regular_ = S_ISREG(status.st_mode);
    if (!regular_) {
      // An empty write detects a device that accepts no data (/dev/full) now, and not at the first
      // record.
      if (S_ISCHR(status.st_mode) && ::write(fd_, "", 0) < 0) fail("cannot be written", errno);
      return;
    }
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      core::fail(Status::io_error, "{}: another process is writing to it", path_);
    size_ = status.st_size;
    if (mode == OpenMode::create)
      core::require(size_ == 0,
                    "{}: the file has {} bytes and is not overwritten; use --append to add to it, "
                    "--resume to also skip the cases that it has, or name another file",
                    path_, size_);
    else
      read_and_repair(line_start, check);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      owned_(std::exchange(other.owned_, false)),
      regular_(other.regular_),
      size_(other.size_),
      lines_(std::move(other.lines_)),
      notes_(std::move(other.notes_)) {}

LineFile::~LineFile() {
  if (!owned_) return;
  // Frees the disk space that was reserved beyond the end of the file.
  if (regular_ && ::ftruncate(fd_, size_) != 0) {
    // If freeing the reserved space fails, nothing is lost: the file keeps the space.
  }
  ::close(fd_);
}

void LineFile::read_and_repair(std::string_view line_start, const CheckLine& check) {
  const std::string text = read_all(fd_, path_);
  std::size_t begin = 0;
  std::string_view torn;
  bool newline_missing = false;
  while (begin < text.size()) {
    const std::size_t newline = text.find('\n', begin);
    const bool whole = newline != std::string::npos;
    const std::size_t end = whole ? newline : text.size();
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    const bool last = !whole || newline + 1 == text.size();
    try {
      check(line);
    } catch (const Error& error) {
      const bool starts_ours =
          line.starts_with(line_start) || (!whole && line_start.starts_with(line));
      const bool zeros = !whole && line.find_first_not_of('\0') == std::string_view::npos;
      // A line that is complete JSON was not truncated, even if something else is wrong with it.
      const bool cut_short = !nlohmann::json::accept(line);
      if (!last || !cut_short || !(starts_ours || zeros))
        core::fail(Status::invalid_argument, "{}:{}: {}; the file is not changed; name another one",
                   path_, lines_.size() + 1, error.what());
      torn = line;
      break;
    }
    lines_.emplace_back(line);
    newline_missing = !whole;
    begin = whole ? newline + 1 : text.size();
  }
  size_ = static_cast<std::int64_t>(begin);
  if (!torn.empty()) {
    if (::ftruncate(fd_, size_) != 0) fail("its incomplete last line cannot be removed", errno);
    notes_.push_back(fmt::format("{}:{}: an incomplete line of {} bytes was removed", path_,
                                 lines_.size() + 1, text.size() - begin));
  } else if (newline_missing) {
    write({});
    notes_.push_back(
        fmt::format("{}:{}: a missing newline was added to the line", path_, lines_.size()));
  }
}

void LineFile::reserve(std::int64_t bytes) {
  if (!regular_ || bytes <= 0) return;
#ifdef FALLOC_FL_KEEP_SIZE
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, size_, bytes) == 0) return;
  // Not every file system can reserve space. The others report a full disk at the first write.
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) fail("no space for the records", errno);
#endif
}

void LineFile::write(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  std::size_t done = 0;
  int error = 0;
  while (done < bytes.size() && error == 0) {
    const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      // A write to a regular file writes all bytes unless the disk is full.
      if (regular_ && done < bytes.size()) error = ENOSPC;
    } else if (count < 0 && errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && regular_ && ::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS)
    error = errno;
  if (error != 0) {
    if (regular_ && ::ftruncate(fd_, size_) != 0)
      fail("cannot be truncated after a failed write", errno);
    fail("cannot be written", error);
  }
  size_ += static_cast<std::int64_t>(bytes.size());
}

}  // namespace switchback::bench
