// SPDX-License-Identifier: Apache-2.0
// What the helper program runs: it answers the requests of a Validator in the tuner's process.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/operations.hpp"
#include "autotune/store/entry.hpp"
#include "autotune/validation/line_reader.hpp"
#include "autotune/validation/words.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "switchback/validate.hpp"

#if defined(__linux__)
#include <signal.h>
#include <sys/prctl.h>
#endif

namespace switchback {

namespace {

constexpr std::size_t most_line_bytes = std::size_t{1} << 20;

using namespace autotune;

class Lines {
 public:
  Lines(int in, int out, double idle_s)
      : in_(in), out_(out), idle_s_(std::clamp(idle_s, 0.0, 1e6)) {}

  // Reads a line. Returns false at the end of the input, or if no line came within the time limit.
  bool read(std::string& line) {
    return reader_.read(in_, std::chrono::duration<double>(idle_s_), line) ==
           LineReader::Reply::line;
  }

  bool write(std::string_view word, std::string_view text = {}) {
    std::string line(word);
    if (!text.empty()) line += one_line(text);
    line += '\n';
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t count = ::write(out_, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

 private:
  int in_;
  int out_;
  double idle_s_;
  LineReader reader_{most_line_bytes};
};

// Validates candidates. It keeps the Context, and the trial of the last candidate's problem, whose
// default configuration has passed its check.
class Server {
 public:
  explicit Server(const ValidationSetting& setting) {
    ContextOptions options;
    options.device = setting.device;
    options.threads = setting.threads;
    options.isa = setting.isa;
    context_.emplace(options);
    context_->set_config_source(nullptr);  // only the candidate may run, no tuned configuration
    machine_ = machine_of(context_->state());
    if (const core::DeviceRuntime* runtime = context_->state().runtime.get())
      core::require(runtime->info().pci_bus_id == setting.place,
                    "device {} is a different device in this process: {}, not {}", setting.device,
                    runtime->info().pci_bus_id, setting.place);
  }

  // Validates the candidate in a line. Returns the first word of the answer; `why` becomes the text
  // after that word.
  std::string_view validate(const std::string& line, std::string& why) {
    const std::optional<Entry> question = from_line(line, why);
    if (!question || question->validated.size() != 1) return cannot_word;
    const std::optional<KeyParts> parts = parse_key(question->key.json, why);
    if (!parts) return cannot_word;
    const std::optional<ConfigChoice> choice =
        to_choice(parts->query.op, question->validated.front().candidate, why);
    if (!choice) return cannot_word;
    try {
      take(*parts);
    } catch (const std::bad_alloc&) {
      why = "there is not enough memory in addition to what the tuner's program uses";
    } catch (const Error& error) {
      why = error.what();
      if (error.status() == Status::device_error) return dead_word;
    }
    if (!why.empty()) return cannot_word;
    try {
      // Checks twice: the first run may leave a state that makes the second run fail.
      for (int i = 0; i < 2 && why.empty(); ++i) {
        why = trial_->check(*choice);
        context_->synchronize();
      }
    } catch (const std::bad_alloc&) {
      why = "there is not enough memory in addition to what the tuner's program uses";
      return cannot_word;
    } catch (const Error& error) {
      why = error.what();
      if (error.status() == Status::out_of_memory) return cannot_word;
      if (error.status() == Status::device_error) return dead_word;
    }
    return why.empty() ? right_word : wrong_word;
  }

 private:
  void take(const KeyParts& parts) {
    core::require(parts.machine == machine_, "the candidate is for {}, and this machine is {}",
                  parts.machine, machine_);
    if (trial_ && query_ == parts.query) return;
    trial_.reset();
    if (const std::string why = too_large(parts.query, context_->state()); !why.empty())
      core::fail(Status::out_of_memory, "{}", why);
    std::unique_ptr<Trial> trial = make_trial(*context_, parts.query, Purpose::checks);
    const std::string why = trial->check(trial->candidates().front());
    if (!why.empty()) core::fail(Status::internal, "the default configuration is wrong: {}", why);
    query_ = parts.query;
    trial_ = std::move(trial);
  }

  std::optional<Context> context_;
  Machine machine_;
  ConfigQuery query_;
  std::unique_ptr<Trial> trial_;
};

int serve(Lines& lines) {
  std::string line;
  if (!lines.read(line)) return 0;
  ValidationSetting setting;
  if (!from_line(line, setting)) {
    lines.write(cannot_word, "the request is from another version");
    return 1;
  }
  std::optional<Server> server;
  try {
    server.emplace(setting);
  } catch (const std::exception& error) {
    lines.write(cannot_word, error.what());
    return 1;
  }
  if (!lines.write(ready_answer())) return 1;
  while (lines.read(line)) {
    std::string why;
    const std::string_view word = server->validate(line, why);
    if (!lines.write(word, why)) return 1;
    if (word == dead_word) return 1;
  }
  return 0;
}

}  // namespace

int validate_candidates(int requests, int answers, double idle_s) noexcept {
  try {
#if defined(__linux__)
    // If a candidate hangs, this process must end together with the tuner's process.
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    Lines lines(requests, answers, idle_s);
    return serve(lines);
  } catch (...) {  // there is no memory left
    return 1;
  }
}

}  // namespace switchback
