// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/session.hpp"

#include <CLI/CLI.hpp>

#include "bench/cli/signals.hpp"
#include "bench/machine/machine.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

Session::Session(const SessionOptions& options, measure::Clock::time_point start)
    : options_(options),
      start_(start),
      context_(options.context),
      machine_(machine_json(context_)),
      out_(options.quiet),
      // If the device is not the CPU, the measurement keeps only one CPU thread busy, which queues
      // the work.
      load_(on_cpu() ? context_.threads() : 1),
      disturbance_(on_cpu() ? context_.threads() : 1) {}

bool Session::on_cpu() const noexcept {
  return context_.state().runtime == nullptr;
}

std::size_t Session::free_bytes() const {
  return on_cpu() ? available_memory_bytes() : context_.state().runtime->free_bytes();
}

double Session::elapsed_s() const {
  return std::chrono::duration<double>(measure::Clock::now() - start_).count();
}

std::optional<measure::Clock::time_point> Session::deadline() const {
  if (!options_.deadline_s) return std::nullopt;
  return start_ + measure::from_seconds(*options_.deadline_s);
}

bool Session::interrupted() noexcept {
  return StopSignals::requested();
}

void AutoTuning::add_options(CLI::App& command) {
  command
      .add_option("--tune", seconds_,
                  "seconds that the tuner may spend on each size for mode auto if its cache lacks "
                  "it; 0: none")
      ->capture_default_str();
  command.add_option("--cache", cache_, "directory of the tuner's cache")->type_name("DIR");
}

void AutoTuning::check_options() const {
  core::require(seconds_ >= 0, "--tune {}: it must not be negative", seconds_);
}

void AutoTuning::open(Session& session) {
  TunerOptions options;
  options.cache_directory = cache_;
  options.warn = [&session](const std::string& text) { session.warning(text); };
  tuner_ = Tuner::open(session.context(), options);
  tuner_->attach(session.context());
  if (tuner_->mode() == TuneMode::off) tuner_ = nullptr;
}

void AutoTuning::tune(Context& context, std::span<const TuneShape> shapes) const {
  if (tuner_ == nullptr || seconds_ == 0) return;
  tuner_->tune(context, {shapes.begin(), shapes.end()}, {.budget_s = seconds_},
               [](const TuneSummary&) { return !Session::interrupted(); });
}

}  // namespace switchback::bench
