// SPDX-License-Identifier: Apache-2.0
// Entry points of the tuner: the functions of switchback/tuner.hpp.
#include "switchback/tuner.hpp"

#include <array>
#include <utility>

#include "autotune/session.hpp"
#include "autotune/tuner_state.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback {

namespace {
constexpr std::array<std::string_view, 5> mode_names = {"off", "read", "record", "tune", "require"};
}

std::string_view tune_mode_name(TuneMode mode) noexcept {
  const auto index = static_cast<std::size_t>(mode);
  return index < mode_names.size() ? mode_names[index] : "unknown";
}

TuneMode parse_tune_mode(std::string_view name) {
  for (std::size_t i = 0; i < mode_names.size(); ++i)
    if (mode_names[i] == name) return static_cast<TuneMode>(i);
  core::fail(Status::invalid_argument,
             "tuner: mode '{}' is not one of off, read, record, tune, require (SWITCHBACK_TUNE)",
             name);
}

std::string_view tune_origin_name(TuneOrigin origin) noexcept {
  switch (origin) {
    case TuneOrigin::fallback:
      return "default";
    case TuneOrigin::exact:
      return "cache";
    case TuneOrigin::near_shape:
      return "near shape";
    case TuneOrigin::system_list:
      return "system list";
    case TuneOrigin::validated:
      return "proven default";
  }
  return "unknown";
}

Tuner::Tuner(std::shared_ptr<TunerState> state) noexcept : state_(std::move(state)) {}
Tuner::~Tuner() = default;

std::shared_ptr<Tuner> Tuner::open(const Context& context, const TunerOptions& options) {
  return std::shared_ptr<Tuner>(new Tuner(std::make_shared<TunerState>(context, options)));
}

void Tuner::attach(Context& context) const {
  const autotune::Machine there = autotune::machine_of(context.state());
  core::require(there == state_->machine, "attach: the Context is for {}; the tuner is for {}",
                there, state_->machine);
  context.set_config_source(state_->mode == TuneMode::off ? nullptr : state_);
}

TuneMode Tuner::mode() const noexcept {
  return state_->mode;
}
std::string Tuner::cache_file() const {
  return state_->cache_file.string();
}
TunerCounters Tuner::counters() const noexcept {
  return {state_->hits.load(), state_->misses.load(), state_->refusals.load(),
          state_->memory_bytes()};
}
std::vector<std::string> Tuner::warnings() const {
  return state_->warnings();
}

TuneSummary Tuner::tune(Context& context, const std::vector<TuneShape>& shapes,
                        const TuneLimits& limits,
                        const std::function<bool(const TuneSummary&)>& progress) {
  core::require(limits.budget_s >= 0 && limits.budget_per_key_s >= 0 && limits.max_candidates >= 0,
                "tune: budget_s = {}, budget_per_key_s = {}, max_candidates = {}; none may be "
                "negative",
                limits.budget_s, limits.budget_per_key_s, limits.max_candidates);
  const autotune::Machine there = autotune::machine_of(context.state());
  core::require(there == state_->machine, "tune: the Context is for {}; the tuner is for {}", there,
                state_->machine);
  autotune::SessionOptions session;
  session.limits = limits;
  bool stopped = false;
  session.interrupted = [&] { return stopped; };
  if (progress)
    session.end = [&](std::size_t, const ConfigQuery&, const autotune::TuneOutcome*,
                      const std::string&,
                      const TuneSummary& so_far) { stopped = !progress(so_far); };
  return autotune::run_session(*state_, context, autotune::queries_of(context, shapes), session)
      .summary;
}

}  // namespace switchback
