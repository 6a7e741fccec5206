// SPDX-License-Identifier: Apache-2.0
// Bench: one side of `compare-builds`: a program with its environment and arguments, run as a child
// process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchback::bench {

/// A program or a configuration of one.
struct Contender {
  std::string text;     ///< as the user gave it
  std::string program;  ///< a path, or a name to look for in PATH
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process's
  std::vector<std::string> arguments;                            ///< appended to the common ones
};

/// "[NAME=VALUE …] [PROGRAM] [ARGUMENT …]": words separated by blanks; '…' and "…" may contain
/// blanks. A PROGRAM is a word that does not begin with '-'; without one, the program is `self`.
/// Throws Error(invalid_argument) if the text is empty or a quote is not closed.
Contender parse_contender(std::string_view text, const std::string& self);

struct ChildEnd {
  int code = 0;              ///< the exit code; 128 + N after signal N
  bool interrupted = false;  ///< the user stopped this process, which passed the signal on
};

/// Runs the program until it ends, with these arguments between the program and its own arguments.
/// Standard input and output are /dev/null; standard error goes to the file. The child has its own
/// process group: Ctrl-C reaches only this process, which passes it on once. Throws Error(io_error)
/// if the program cannot be started.
ChildEnd run_child(const Contender& contender, const std::vector<std::string>& arguments,
                   const std::string& stderr_path);

}  // namespace switchback::bench
