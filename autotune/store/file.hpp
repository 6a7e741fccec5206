// SPDX-License-Identifier: Apache-2.0
// Tuner: the system's calls on files, as the store uses them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace switchback::autotune {

/// A file descriptor that is closed.
class File {
 public:
  explicit File(int fd) noexcept : fd_(fd) {}
  ~File() { close(); }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  void close() noexcept;
  int fd_;
};

/// open() with O_CLOEXEC. Not open on failure, with the reason in errno.
File open_file(const std::filesystem::path& path, int flags, unsigned mode = 0666) noexcept;

/// Throws Error(io_error): "FILE: WHAT: the system's words for the error".
[[noreturn]] void fail_io(const std::filesystem::path& file, std::string_view what, int error);

/// A file larger than this is no cache: it is not read.
inline constexpr std::int64_t max_file_bytes = std::int64_t{4} << 30;

/// Follows symbolic links to the name of a file, which need not be there. What is in the way, in
/// words, or empty. For root that is also a link of another user.
std::string resolve_links(const std::filesystem::path& path, std::filesystem::path& target);

/// Why a process of root must not use an open file, which another user can have put there: it
/// belongs neither to root nor to the owner of its directory, or all may write to that directory.
/// Empty: it may; other processes may use what they can open.
std::string untrusted(const File& file, const std::filesystem::path& path);

enum class ReadResult { ok, missing, failed };
/// What a regular file holds at this moment. On failure `why` says what is wrong, without the name.
ReadResult read_file(const std::filesystem::path& path, std::string& text, std::string& why);
/// The same of a file of a cache, which must not be untrusted().
ReadResult read_trusted_file(const std::filesystem::path& path, std::string& text,
                             std::string& why);

/// Writes all of it by one call at the current position, or behind the end with O_APPEND, and sends
/// it to the disk. An empty text on success; else what failed, and an unknown part is written. At a
/// limit on file sizes that is an error like any other: the signal SIGXFSZ, which would end the
/// process, is held back from this thread and taken away.
std::string write_and_sync(const File& file, std::string_view bytes);

/// Makes names in a directory last: of files created and renamed.
void sync_directory(const std::filesystem::path& directory);

/// The directory a path's last name is in; "." for a mere name.
std::filesystem::path directory_of(const std::filesystem::path& path);

}  // namespace switchback::autotune
