// SPDX-License-Identifier: Apache-2.0
// Tuner: the system calls on files that the store uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace switchback::autotune {

/// A file descriptor that closes itself.
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

/// open() with O_CLOEXEC. If it fails, the File is not open and errno has the reason.
File open_file(const std::filesystem::path& path, int flags, unsigned mode = 0666) noexcept;

/// Throws Error(io_error) with the message "FILE: WHAT: the system's text for the error".
[[noreturn]] void fail_io(const std::filesystem::path& file, std::string_view what, int error);

/// The size of the largest file that is read. A larger file is not a cache.
inline constexpr std::int64_t max_file_bytes = std::int64_t{4} << 30;

/// Follows symbolic links to the name of a file, which need not exist. Returns an empty text on
/// success, otherwise why the links cannot be followed. For root, a link that belongs to another
/// user is an error too.
std::string resolve_links(const std::filesystem::path& path, std::filesystem::path& target);

/// Why a process of root must not use an open file that another user may have put there: it belongs
/// neither to root nor to the owner of its directory, or everyone may write to that directory.
/// Empty: the process may use it. Processes of other users may use every file that they can open.
std::string untrusted(const File& file, const std::filesystem::path& path);

enum class ReadResult { ok, missing, failed };
/// Reads the contents of a regular file into `text`. On failure `why` says what is wrong, without
/// the file's name.
ReadResult read_file(const std::filesystem::path& path, std::string& text, std::string& why);
/// Reads a file of a cache as read_file() does, but fails if the file is untrusted().
ReadResult read_trusted_file(const std::filesystem::path& path, std::string& text,
                             std::string& why);

/// Writes all bytes at the file's current position and syncs the file. Returns an empty text on
/// success, otherwise what failed; then an unknown part has been written. Exceeding the limit on
/// file sizes is an ordinary error: the signal SIGXFSZ, which would end the process, is blocked in
/// this thread and consumed.
std::string write_and_sync(const File& file, std::string_view bytes);

/// Syncs a directory, so that files created and renamed in it survive a crash.
void sync_directory(const std::filesystem::path& directory);

/// The directory part of a path; "." if there is none.
std::filesystem::path directory_of(const std::filesystem::path& path);

}  // namespace switchback::autotune
