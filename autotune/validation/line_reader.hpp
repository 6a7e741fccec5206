// SPDX-License-Identifier: Apache-2.0
// Tuner: reads lines of text from a file descriptor, with a time limit for each line.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace switchback::autotune {

class LineReader {
 public:
  /// A line of more than `most_bytes` is an error: the Reply is `closed`.
  explicit LineReader(std::size_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  enum class Reply {
    line,    ///< a line was read
    closed,  ///< the peer ended, closed its side, or wrote a line that is too long
    late     ///< the time limit passed
  };
  /// Reads the next line, without its newline.
  Reply read(int descriptor, std::chrono::duration<double> limit, std::string& line);
  /// Discards text that was received but not yet returned as a line.
  void clear() noexcept { read_.clear(); }

 private:
  std::size_t most_bytes_;
  std::string read_;
};

}  // namespace switchback::autotune
