// SPDX-License-Identifier: Apache-2.0
// Test support: runs code in a child process of fork().
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace switchback::test {

/// Runs body() in a child of fork() and returns its result. A child that hangs is killed.
/// GoogleTest expectations in the child would not reach the parent, so body() uses none.
template <class Body>
testing::AssertionResult in_child(Body body) {
  constexpr unsigned patience_s = 60;
  const pid_t child = fork();
  if (child < 0) return testing::AssertionFailure() << "fork() failed";
  if (child == 0) {
    alarm(patience_s);
    bool right = false;
    try {
      right = body();
    } catch (...) {
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return testing::AssertionFailure() << "waitpid() failed";
  if (WIFSIGNALED(status))
    return testing::AssertionFailure()
           << (WTERMSIG(status) == SIGALRM ? "the child hung; signal "
                                           : "the child died of signal ")
           << WTERMSIG(status);
  return WEXITSTATUS(status) == 0 ? testing::AssertionSuccess()
                                  : testing::AssertionFailure() << "the child says no";
}

}  // namespace switchback::test
