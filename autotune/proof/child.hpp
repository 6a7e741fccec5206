// SPDX-License-Identifier: Apache-2.0
// Tuner: a child process that answers questions, each a line of text.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/proof/line_reader.hpp"

namespace switchback::autotune {

/// The child and the socket that is its standard input and output. Its standard error goes to
/// /dev/null. Signals of this process's terminal do not reach it, and nothing that it does, or
/// fails to do, raises one here.
class Child {
 public:
  Child() = default;
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Starts a program, whose name is the first of the arguments; not looked up in PATH. Returns why
  /// it could not be started; empty: it was.
  [[nodiscard]] std::string start(const std::vector<std::string>& arguments);
  [[nodiscard]] bool runs() const noexcept { return pid_ > 0; }

  using Reply = LineReader::Reply;
  /// Sends a line, without its newline, and waits for one.
  Reply ask(std::string_view line, std::chrono::duration<double> limit, std::string& answer);

  struct Ending {
    /// "crashed with signal 11 (Segmentation fault)", "ended with exit code 3"; empty: exit code 0,
    /// or not known.
    std::string how;
    bool by_others = false;  ///< by a signal that somebody sent
  };
  /// Ends it, by force if it does not end by itself.
  Ending end();
  /// Ends it by force.
  void kill();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  LineReader lines_{std::size_t{1} << 16};
};

}  // namespace switchback::autotune
