// SPDX-License-Identifier: Apache-2.0
#include "autotune/validation/validator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/store/entry.hpp"
#include "autotune/tune.hpp"
#include "autotune/validation/words.hpp"
#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::autotune {

namespace {
constexpr std::string_view no_time = "no time was left";
}

Validator::Validator(const ContextState& state, ValidatorOptions options)
    : options_(std::move(options)), machine_(machine_of(state)) {
  ValidationSetting setting;
  setting.device = device_name(state.device);
  if (state.on_cpu()) {
    setting.threads = state.threads.count();
    setting.isa = core::isa_name(state.features.level());
  } else {
    setting.place = state.runtime->info().pci_bus_id;
  }
  context_line_ = to_line(setting);
}

std::string Validator::failed_start(std::string_view how) {
  broken_ = options_.command.empty()
                ? std::string(how)
                : fmt::format("the helper program '{}': {}", options_.command.front(), how);
  return broken_;
}

std::string Validator::ensure(double limit_s) {
  if (!broken_.empty()) return broken_;
  if (child_.runs()) return {};
  if (options_.command.empty()) return failed_start(options_.why_none);
  if (const std::string why = child_.start(options_.command); !why.empty())
    return failed_start(why);
  ++starts_;
  std::string answer;
  const std::chrono::duration<double> limit(std::min(options_.start_limit_s, limit_s));
  switch (child_.ask(context_line_, limit, answer)) {
    case Child::Reply::line:
      break;
    case Child::Reply::closed: {
      const std::string how = child_.end().how;
      return failed_start(how.empty() ? "it ended before it answered" : "it " + how);
    }
    case Child::Reply::late:
      child_.kill();
      if (limit_s < options_.start_limit_s) return std::string(no_time);
      return failed_start(fmt::format("it did not answer within {} s", options_.start_limit_s));
  }
  if (answer == ready_answer()) return {};
  child_.end();
  std::string_view word = answer;
  if (const std::string_view text = after(word, cannot_word); !text.empty())
    return failed_start(text);
  return failed_start(fmt::format("it is of another version: it answered '{}'", answer));
}

Validation Validator::validate(const ConfigQuery& query, const ConfigChoice& choice,
                               double limit_s) {
  const std::lock_guard lock(mutex_);
  const measure::Clock::time_point end = measure::deadline_in(limit_s);
  const auto left_s = [&] { return measure::seconds_between(measure::Clock::now(), end); };
  Entry question;
  question.key = key_of(query, machine_);
  question.validated.push_back({to_text(query.op, choice), {}, time_now()});
  const std::string line = to_line(question);
  // A child that was idle for a long time ends by itself. Then start another child and ask again.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool is_new = !child_.runs();
    if (const std::string why = ensure(left_s()); !why.empty()) return Validation::unvalidated(why);
    std::string answer;
    const double most_s = std::min(options_.limit_s, left_s());
    const Child::Reply reply = child_.ask(line, std::chrono::duration<double>(most_s), answer);
    if (reply == Child::Reply::late) {
      child_.kill();
      if (most_s < options_.limit_s) return Validation::unvalidated(std::string(no_time));
      return Validation::wrong(
          fmt::format("in a separate process it took longer than {} s", options_.limit_s));
    }
    if (reply == Child::Reply::closed) {
      const auto [how, by_others] = child_.end();
      if (how.empty() && !is_new) continue;
      if (by_others) return Validation::unvalidated("the helper program " + how);
      return Validation::wrong(
          fmt::format("in a separate process it {}", how.empty() ? "gave no answer" : how));
    }
    if (answer == right_word) return {};
    if (const std::string_view why = after(answer, wrong_word); !why.empty())
      return Validation::wrong(std::string(why));
    if (const std::string_view why = after(answer, dead_word); !why.empty()) {
      child_.end();
      return Validation::wrong(fmt::format("in a separate process: {}", why));
    }
    if (const std::string_view why = after(answer, cannot_word); !why.empty())
      return Validation::unvalidated(std::string(why));
    child_.end();
    return Validation::unvalidated(fmt::format("the helper program answered '{}'", answer));
  }
  return Validation::unvalidated("the helper program ended before it answered");
}

}  // namespace switchback::autotune
