// SPDX-License-Identifier: Apache-2.0
// Bench: one side of `compare-builds`: a program with its environment and arguments, which is run
// as a child process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchback::bench {

/// One of the two things that compare-builds compares: a program with its environment and
/// arguments.
struct Contender {
  std::string text;     ///< the description that the user typed
  std::string program;  ///< a path, or a name to look for in PATH
  /// Variables to add to this process's environment.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> arguments;  ///< arguments of this side, after those that both sides have
};

/// Parses "[NAME=VALUE …] [PROGRAM] [ARGUMENT …]": words separated by blanks; '…' and "…" may
/// contain blanks. A PROGRAM is a word that does not begin with '-'; without one, the program is
/// `self`. Throws Error(invalid_argument) if the text is empty or a quote is not closed.
Contender parse_contender(std::string_view text, const std::string& self);

struct ChildEnd {
  int code = 0;  ///< the child's exit code; 128 + N if signal N ended it
  /// The user sent a signal to this process, which passed it on to the child.
  bool interrupted = false;
};

/// Runs the contender's program until it ends. `arguments` come before the contender's own
/// arguments. Standard input and output are /dev/null; standard error goes to the file
/// `stderr_path`. The child has its own process group: Ctrl-C reaches only this process, which
/// passes it on once. Throws Error(io_error) if the program cannot be started.
ChildEnd run_child(const Contender& contender, const std::vector<std::string>& arguments,
                   const std::string& stderr_path);

}  // namespace switchback::bench
