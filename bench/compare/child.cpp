// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "bench/cli/signals.hpp"
#include "core/check.hpp"

extern char** environ;

namespace switchback::bench {

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ') {
      if (begun) words.push_back(std::move(word));
      word.clear();
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  core::require(quote == 0, "'{}': a quote is not closed", text);
  if (begun) words.push_back(std::move(word));
  return words;
}

bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  const std::string_view name = std::string_view(word).substr(0, equals);
  return name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos &&
         (name[0] < '0' || name[0] > '9');
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words)
    all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// The environment of a child process: that of this process, in which the contender's variables
/// replace those with the same names.
std::vector<std::string> environment_of(const Contender& contender) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : contender.environment)
      replaced = replaced || text.substr(0, text.find('=')) == name;
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [name, value] : contender.environment)
    all.push_back(name + "=" + value);
  return all;
}

class SpawnSetting {
 public:
  explicit SpawnSetting(const std::string& stderr_path) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, stderr_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGPIPE})
      sigaddset(&signals, number);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSetting() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  SpawnSetting(const SpawnSetting&) = delete;
  SpawnSetting& operator=(const SpawnSetting&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

}  // namespace

Contender parse_contender(std::string_view text, const std::string& self) {
  Contender contender;
  contender.text = text;
  contender.program = self;
  const std::vector<std::string> words = words_of(text);
  core::require(!words.empty(),
                "'{}': it must be a program or a configuration: [NAME=VALUE …] [PROGRAM] "
                "[ARGUMENT …]",
                text);
  std::size_t at = 0;
  for (; at < words.size() && is_assignment(words[at]); ++at) {
    const std::size_t equals = words[at].find('=');
    contender.environment.emplace_back(words[at].substr(0, equals), words[at].substr(equals + 1));
  }
  if (at < words.size() && !words[at].starts_with('-')) contender.program = words[at++];
  contender.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  return contender;
}

ChildEnd run_child(const Contender& contender, const std::vector<std::string>& arguments,
                   const std::string& stderr_path) {
  std::vector<std::string> words{contender.program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.end(), contender.arguments.begin(), contender.arguments.end());
  std::vector<std::string> environment = environment_of(contender);
  const SpawnSetting setting(stderr_path);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, contender.program.c_str(), &setting.files, &setting.attributes,
                     pointers(words).data(), pointers(environment).data());
  if (error != 0)
    core::fail(Status::io_error, "{}: cannot be started: {}", contender.program,
               std::strerror(error));
  ChildEnd end;
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR)
      core::fail(Status::io_error, "{}: its exit status is unknown: {}", contender.program,
                 std::strerror(errno));
    if (StopSignals::requested() && !end.interrupted) {
      end.interrupted = true;
      ::kill(child, SIGINT);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace switchback::bench
