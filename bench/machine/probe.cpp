// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/probe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/environment.hpp"
#include "autotune/store/record.hpp"
#include "autotune/task.hpp"
#include "autotune/tune.hpp"
#include "bench/cli/cli.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "measure/rounds.hpp"

extern char** environ;

namespace switchback::bench {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// Reads until the other end is closed or the time is over; false if it is over.
bool read_output(int fd, measure::Clock::time_point end, std::string& output) {
  constexpr std::size_t most = 4096;
  std::array<char, 1024> part;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - measure::Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{fd, POLLIN, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::min<long long>(left, 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t count = ::read(fd, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(part.data(), std::min(static_cast<std::size_t>(count), most - output.size()));
  }
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& arguments, double limit_s) {
  ChildResult result;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    result.how = fmt::format("no pipe could be made: {}", std::strerror(errno));
    return result;
  }
  Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> argv;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int spawned = ::posix_spawn(&child, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.close();
  if (spawned != 0) {
    result.how =
        fmt::format("'{}' could not be started: {}", arguments.front(), std::strerror(spawned));
    return result;
  }
  const measure::Clock::time_point end = measure::deadline_in(limit_s);
  const bool in_time = read_output(read_end.get(), end, result.output);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    result.how = fmt::format("took longer than {}", format_duration(limit_s));
  } else if (WIFSIGNALED(status)) {
    result.how =
        fmt::format("crashed with signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

Prober::Prober(const ContextOptions& context, std::string program, double limit_s)
    : context_(context),
      program_(program.empty() ? "/proc/self/exe" : std::move(program)),
      limit_s_(limit_s),
      machine_(autotune::machine_of(Context(context).state())) {}

std::string Prober::why_not(const ConfigQuery& query, const ConfigChoice& choice) const {
  autotune::Record record;
  record.key = autotune::key_of(query, machine_);
  record.candidate = autotune::to_text(query.op, choice);
  record.time = autotune::time_now();
  std::vector<std::string> arguments = {program_, "tune-probe", autotune::to_line(record)};
  const auto add = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    arguments.emplace_back(name);
    arguments.push_back(value);
  };
  add("--device", context_.device);
  add("--isa", context_.isa);
  if (context_.threads > 0) add("--threads", std::to_string(context_.threads));
  const ChildResult child = run_child(arguments, limit_s_);
  if (!child.how.empty()) return "in a process of its own it " + child.how;
  if (child.exit_code == exit_codes::ok) return {};
  return child.output.empty()
             ? fmt::format("in a process of its own it ended with exit code {}", child.exit_code)
             : child.output;
}

int probe_command(const ContextOptions& options, const std::string& line) {
  std::string why;
  const std::optional<autotune::Record> record = autotune::from_line(line, why);
  core::require(record.has_value(), "tune-probe: {}", why);
  const std::optional<autotune::KeyParts> parts = autotune::parse_key(record->key.json, why);
  core::require(parts.has_value(), "tune-probe: {}", why);
  const std::optional<ConfigChoice> choice =
      autotune::to_choice(parts->query.op, record->candidate, why);
  core::require(choice.has_value(), "tune-probe: {}", why);
  Context context(options);
  const auto task = autotune::make_task(context, parts->query);
  why = task->check(task->candidates().front());
  // Twice: what is left behind by the first run may be what the second one stumbles over.
  for (int i = 0; i < 2 && why.empty(); ++i) {
    why = task->check(*choice);
    context.synchronize();
  }
  fmt::print("{}", why);
  return why.empty() ? exit_codes::ok : exit_codes::failed;
}

}  // namespace switchback::bench
