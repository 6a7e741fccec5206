// SPDX-License-Identifier: Apache-2.0
// Bench: files of JSON lines that a crash, a full disk or a second run cannot spoil.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

enum class OpenMode {
  create,  ///< the file is new or empty
  append,  ///< lines are added behind those there
};

/// A file written line by line, each in one write(2) with its newline last, and cut back if that
/// write failed half way: a reader never sees half a line that looks whole. One process writes at a
/// time (flock). What is not a regular file (a pipe, /dev/null, standard output) is only written.
class LineFile {
 public:
  /// Throws Error(invalid_argument) if the line is not one of this file's kind.
  using CheckLine = std::function<void(std::string_view line)>;

  /// Opens `path` ("-" is standard output). In mode create an existing file with content is
  /// refused; in mode append every line there must pass `check`, or the file is refused as it is.
  /// Only a torn tail is repaired: a last line that starts with `line_start` but is cut short (or
  /// the zeros that a lost write leaves) is cut off and reported in notes(); a whole last line
  /// without its newline gets one. Throws Error(invalid_argument) for content that is not ours and
  /// Error(io_error) where the file cannot be opened or written.
  LineFile(const std::string& path, OpenMode mode, std::string_view line_start,
           const CheckLine& check);
  ~LineFile();
  LineFile(LineFile&& other) noexcept;
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  LineFile& operator=(LineFile&&) = delete;

  /// Asks the file system for room for that many more bytes, so that a full disk is found before
  /// hours of measuring. Throws Error(io_error).
  void reserve(std::int64_t bytes);
  /// Writes line and newline and sends them to the disk. Throws Error(io_error); the file then
  /// holds what it held before.
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
