// SPDX-License-Identifier: Apache-2.0
// Tuner: a child process that answers questions, each a line of text.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/validation/line_reader.hpp"

namespace switchback::autotune {

/// The child process and the socket that is its standard input and output. Its standard error goes
/// to /dev/null. Signals from this process's terminal do not reach the child. A write to a child
/// that has ended does not raise SIGPIPE in this process.
class Child {
 public:
  Child() = default;
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Starts a program. The first argument is its file name; PATH is not searched. Returns an empty
  /// text on success, else why the program could not be started.
  [[nodiscard]] std::string start(const std::vector<std::string>& arguments);
  [[nodiscard]] bool runs() const noexcept { return pid_ > 0; }

  using Reply = LineReader::Reply;
  /// Sends a line (given without its newline) to the child, and waits for a line of answer.
  Reply ask(std::string_view line, std::chrono::duration<double> limit, std::string& answer);

  struct Ending {
    /// How the child ended: "crashed with signal 11 (Segmentation fault)", "ended with exit code
    /// 3"; empty if the exit code is 0 or is not known.
    std::string how;
    bool by_others = false;  ///< the child was killed by a signal from another process
  };
  /// Ends the child, by force if it does not end by itself.
  Ending end();
  /// Ends the child by force.
  void kill();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  LineReader lines_{std::size_t{1} << 16};
};

}  // namespace switchback::autotune
