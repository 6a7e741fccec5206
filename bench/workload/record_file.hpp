// SPDX-License-Identifier: Apache-2.0
// Bench: files of JSON lines that a crash, a full disk or a second run cannot damage.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

enum class OpenMode {
  create,  ///< the file is new or empty
  append,  ///< lines are added after the existing ones
};

/// A file written line by line, each with one write(2) with its newline last, and truncated if that
/// write failed half way: a reader never sees a partial line that looks complete. One process
/// writes at a time (flock). Pipes, devices and standard output are only written to.
class LineFile {
 public:
  /// Throws Error(invalid_argument) if the line is not one of this file's kind.
  using CheckLine = std::function<void(std::string_view line)>;

  /// Opens `path` ("-" is standard output). Mode create refuses an existing file with content. In
  /// mode append every line must pass `check`, otherwise the file is refused and not changed. Only
  /// a torn end is repaired: a last line that starts with `line_start` but is incomplete (or the
  /// zeros that a lost write leaves) is removed and reported in notes(); a complete last line
  /// without a newline gets one. Throws Error(invalid_argument) for content of another kind, and
  /// Error(io_error) if the file cannot be opened or written.
  LineFile(const std::string& path, OpenMode mode, std::string_view line_start,
           const CheckLine& check);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  LineFile& operator=(LineFile&&) = delete;

  /// Reserves room for this many more bytes, so that a full disk is noticed before hours of
  /// measuring. Throws Error(io_error).
  void reserve(std::int64_t bytes);
  /// Writes the line and a newline, and syncs the file. Throws Error(io_error) if that fails; the
  /// file is then unchanged.
  void write(std::string_view line);

  /// The lines found when opened, after repair.
  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }
  /// What was repaired, one sentence each, "FILE:LINE: …".
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool regular() const noexcept { return regular_; }

 private:
  void read_and_repair(std::string_view line_start, const CheckLine& check);
  [[noreturn]] void fail(std::string_view what, int error) const;

  std::string path_;
  int fd_ = -1;
  bool owned_ = false;
  bool regular_ = false;
  std::int64_t size_ = 0;
  std::vector<std::string> lines_;
  std::vector<std::string> notes_;
};

/// Reads a whole file, or standard input if the path is "-". Throws Error(io_error) with the
/// system's reason.
std::string read_file(const std::string& path);

}  // namespace switchback::bench
