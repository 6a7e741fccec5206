// SPDX-License-Identifier: Apache-2.0
#include "autotune/validation/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

extern char** environ;

namespace switchback::autotune {

namespace {

using Clock = std::chrono::steady_clock;

std::string error_text(int error) {
  return std::system_category().message(error);
}

// How the child process is started: with the socket as its input and output, an empty signal mask,
// default signal handlers, and its own process group.
class SpawnSetting {
 public:
  explicit SpawnSetting(int socket) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, socket, STDOUT_FILENO);
    ::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    sigset_t none;
    sigset_t by_default;
    ::sigemptyset(&none);
    ::sigemptyset(&by_default);
    for (const int signal : {SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGHUP})
      ::sigaddset(&by_default, signal);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &by_default);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSetting() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnSetting(const SpawnSetting&) = delete;
  SpawnSetting& operator=(const SpawnSetting&) = delete;

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Waits for a process to end; false if it has not ended within this time. If the host program has
// already waited for all of its children, the exit status is not available.
bool wait_for(pid_t pid, std::chrono::milliseconds limit, int& status) {
  const Clock::time_point end = Clock::now() + limit;
  for (;;) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return true;
    if (ended < 0 && errno != EINTR) {
      status = 0;
      return true;
    }
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

std::string Child::start(const std::vector<std::string>& arguments) {
  end();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fmt::format("no socket could be created: {}", error_text(errno));
  socket_ = ends[0];
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const SpawnSetting setting(ends[1]);
  const int failure = ::posix_spawn(&pid_, argv.front(), setting.actions(), setting.attributes(),
                                    argv.data(), environ);
  ::close(ends[1]);
  if (failure == 0) return {};
  pid_ = -1;
  end();
  return fmt::format("it could not be started: {}", error_text(failure));
}

Child::Reply Child::ask(std::string_view line, std::chrono::duration<double> limit,
                        std::string& answer) {
  lines_.clear();  // drop late answers to earlier questions
  std::string text(line);
  text += '\n';
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Reply::closed;
    sent += static_cast<std::size_t>(count);
  }
  return lines_.read(socket_, end - Clock::now(), answer);
}

void Child::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
  end();
}

Child::Ending Child::end() {
  // The child ends when it reads the end of its input.
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  lines_.clear();
  if (pid_ <= 0) return {};
  const pid_t pid = pid_;
  pid_ = -1;
  int status = 0;
  constexpr std::chrono::milliseconds to_end_by_itself{2000};
  // A process that waits for a device may not end for a while even after SIGKILL. It is then left
  // to the system.
  constexpr std::chrono::milliseconds to_be_killed{5000};
  if (!wait_for(pid, to_end_by_itself, status)) {
    ::kill(pid, SIGKILL);
    if (!wait_for(pid, to_be_killed, status)) return {"did not end when it was killed"};
    return {"had to be killed"};
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const bool sent =
        signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    return {fmt::format("crashed with signal {} ({})", signal, ::strsignal(signal)), sent};
  }
  const int code = WEXITSTATUS(status);
  if (code == 0) return {};
  return {fmt::format("ended with exit code {}", code)};
}

}  // namespace switchback::autotune
