// SPDX-License-Identifier: Apache-2.0
// Tuner: lines of text from a file descriptor, each waited for as long as is asked.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace switchback::autotune {

class LineReader {
 public:
  /// A line of more than `most_bytes` is none.
  explicit LineReader(std::size_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  enum class Reply {
    line,    ///< there was one
    closed,  ///< the other side ended, closed its side, or wrote what is no line
    late     ///< the time was over before
  };
  /// The next line, without its newline.
  Reply read(int descriptor, std::chrono::duration<double> limit, std::string& line);
  /// Forgets what was read behind the last line.
  void clear() noexcept { read_.clear(); }

 private:
  std::size_t most_bytes_;
  std::string read_;
};

}  // namespace switchback::autotune
