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
  create,  ///< the file must be new or empty
  append,  ///< lines are added after the existing lines
};

/// A file written line by line. Each line is one write(2) that ends with its newline. If a write
/// fails half way, the file is truncated again. So a reader never sees a partial line that looks
/// complete. Only one process writes at a time (flock). Pipes, devices and standard output are only
/// written to.
class LineFile {
 public:
  /// Checks an existing line. Throws Error(invalid_argument) if the line does not belong in this
  /// file.
  using CheckLine = std::function<void(std::string_view line)>;

  /// Opens `path` ("-" is standard output). Mode create refuses an existing file that is not empty.
  /// In mode append every line must pass `check`; otherwise the file is refused and not changed.
  /// Only a damaged end is repaired. A last line that starts with `line_start` but is incomplete
  /// (or the zeros that a lost write leaves) is removed and reported in notes(). A complete last
  /// line without a newline gets one. Throws Error(invalid_argument) for other contents, and
  /// Error(io_error) if the file cannot be opened or written.
  LineFile(const std::string& path, OpenMode mode, std::string_view line_start,
           const CheckLine& check);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  LineFile& operator=(LineFile&&) = delete;

  /// Reserves disk space for this many more bytes, so that a full disk is noticed before hours of
  /// measuring. Throws Error(io_error).
  void reserve(std::int64_t bytes);
  /// Writes the line and a newline, and syncs the file. If that fails, throws Error(io_error) and
  /// leaves the file unchanged.
  void write(std::string_view line);

  /// The lines that the file had when it was opened, after its repair.
  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }
  /// The repairs that were made when the file was opened, one sentence each: "FILE:LINE: …".
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
