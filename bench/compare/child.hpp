// SPDX-License-Identifier: Apache-2.0
// Bench: one side of `ab`: a program with its environment and arguments, run as a child process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchback::bench {

/// A program or a configuration of one.
struct Contender {
  std::string text;     ///< as it was given
  std::string program;  ///< a path, or a name to look for in PATH
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process's
  std::vector<std::string> arguments;                            ///< behind the common ones
};

/// "[NAME=VALUE …] [PROGRAM] [ARGUMENT …]": words with blanks between; '…' and "…" hold blanks.
/// Without a program, which is a word that does not begin with '-', it is `self`. Throws
/// Error(invalid_argument) if the text is empty or a quote is not closed.
Contender parse_contender(std::string_view text, const std::string& self);

struct ChildEnd {
  int code = 0;              ///< the exit code; 128 + N after signal N
  bool interrupted = false;  ///< the user asked this process to stop; the child was told
};

/// Runs it to its end with these arguments between the program and its own. Standard input and
/// output are /dev/null, standard error goes to the file. The child has a process group of its own,
/// so that Ctrl-C reaches this process alone, which passes it on once. Throws Error(io_error) if it
/// cannot be started.
ChildEnd run_child(const Contender& contender, const std::vector<std::string>& arguments,
                   const std::string& stderr_path);

}  // namespace switchback::bench
