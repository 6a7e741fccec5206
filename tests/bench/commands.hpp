// SPDX-License-Identifier: Apache-2.0
// Test support: commands of `switchback-bench`, which run in this process or as a program.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cli/cli.hpp"
#include "bench/workload/record_file.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"

extern char** environ;

namespace switchback::bench {

struct Result {
  int code = -1;  ///< the exit code; 1000 more than the signal that ended the program
  std::string out, err;
};

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}

/// The JSON objects of a text that has one on each line.
inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    all.push_back(nlohmann::json::parse(line));
  return all;
}

/// Runs a command in this process.
inline Result run_here(const std::vector<std::string>& arguments) {
  std::vector<const char*> words{"switchback-bench"};
  for (const std::string& argument : arguments)
    words.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_cli(static_cast<int>(words.size()), words.data());
  const std::string err = testing::internal::GetCapturedStderr();
  return {code, testing::internal::GetCapturedStdout(), err};
}

/// A test with its own directory that starts `switchback-bench` as a shell does.
class ProgramTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path in(const std::string& name) const {
    return directory_ / name;
  }

  [[nodiscard]] pid_t start_program(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{"env"};
    words.insert(words.end(), environment_.begin(), environment_.end());
    words.push_back(program_);
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    constexpr int written = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 0, input_.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output_.c_str(), written, 0600);
    posix_spawn_file_actions_addopen(&files, 2, in("stderr").c_str(), written, 0600);
    // The program gets the default actions of its signals: a test that runs in the background may
    // have been started with SIGINT ignored.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    pid_t child = -1;
    EXPECT_EQ(::posix_spawnp(&child, "env", &files, &attributes, argv.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return child;
  }
  [[nodiscard]] Result finish(pid_t child) const {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            output_ == in("stdout") ? read_file(output_) : "", read_file(in("stderr"))};
  }
  [[nodiscard]] Result run_program(const std::vector<std::string>& arguments) const {
    return finish(start_program(arguments));
  }

  test::TemporaryDirectory directory_;
  std::string program_ = test::program_next_to_this("switchback-bench");
  std::vector<std::string> environment_;  ///< arguments of `env`: NAME=VALUE, or -u and a name
  std::filesystem::path input_ = "/dev/null", output_ = in("stdout");
};

}  // namespace switchback::bench
