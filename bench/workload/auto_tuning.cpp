// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/auto_tuning.hpp"

#include <CLI/CLI.hpp>

#include "core/check.hpp"

namespace switchback::bench {

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
