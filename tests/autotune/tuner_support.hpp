// SPDX-License-Identifier: Apache-2.0
// Test support: tuners with their caches in a temporary directory, and a layer that queries them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "autotune/entries.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tuner_state.hpp"
#include "core/context_state.hpp"
#include "linear/linear_support.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {

inline constexpr std::int64_t rows = 12;
inline constexpr std::int64_t inputs = 40;
inline constexpr std::int64_t outputs = 56;
inline const TuneShape shape{rows, inputs, outputs, DType::f32, true};

inline TuneLimits quick() {
  TuneLimits limits;
  limits.max_candidates = 2;
  limits.budget_per_key_s = 0.5;
  return limits;
}

inline LayerCase case_of(Mode mode) {
  LayerCase c;
  c.m = rows, c.k = inputs, c.n = outputs;
  c.mode = mode;
  return c;
}

/// Runs a training step and an inference step of a layer, which query the context's tuner. In int8
/// modes all results must have the bits of the reference, whatever the tuner answers.
inline void use_layer(Context& context, Mode mode) {
  LayerTrial t(case_of(mode == Mode::automatic ? Mode::standard : mode));
  LinearOptions options = t.options();
  options.mode = mode;
  SwitchbackLinear layer(context, options);
  t.set_weight(layer);
  t.forward(layer, Save::copy);
  t.backward(layer);
  if (traits_of(mode).is_int8()) {
    EXPECT_TRUE(t.y_right());
    EXPECT_TRUE(t.gradients_right());
  }
  layer.prepare_for_eval();
  t.forward(layer, Save::nothing);
}

/// Applies `edit` to every winner in a cache file and writes the file again.
inline void edit_winners(const std::string& file,
                         const std::function<void(autotune::Entry&)>& edit) {
  autotune::Snapshot snapshot;
  snapshot.add_file(file);
  std::vector<autotune::Entry> entries;
  snapshot.for_each([&](const autotune::Entry& entry) {
    entries.push_back(entry);
    if (entry.winner) edit(entries.back());
  });
  put(file, lines_of(entries));
}

/// A context, and tuners whose cache is in a temporary directory.
class Tuner : public testing::Test {
 protected:
  [[nodiscard]] TunerOptions options(std::string mode = "read") const {
    TunerOptions options = tuner_options_in(directory, std::move(mode));
    options.record_file = record_file;
    options.validator = validate_program();
    return options;
  }
  [[nodiscard]] std::shared_ptr<switchback::Tuner> open(std::string mode = "read") const {
    return switchback::Tuner::open(context, options(std::move(mode)));
  }
  /// As open(); the tuner answers the context's look-ups.
  [[nodiscard]] std::shared_ptr<switchback::Tuner> attach(std::string mode) {
    const auto tuner = open(std::move(mode));
    tuner->attach(context);
    return tuner;
  }
  /// Tunes the test's shape and returns the cache file, which no tuner has open any longer.
  [[nodiscard]] std::string tuned_file() {
    const auto tuner = open();
    tuner->tune(context, {shape}, quick());
    return tuner->cache_file();
  }
  [[nodiscard]] std::vector<ConfigQuery> queries() {
    return autotune::layer_queries(context, shape);
  }
  /// Where the tuner's answers to the queries of a layer of the test's shape come from.
  [[nodiscard]] std::set<TuneOrigin> origins_of(const switchback::Tuner& tuner) {
    std::set<TuneOrigin> origins;
    for (const ConfigQuery& query : queries())
      origins.insert(tuner.state().look_up(query, context.state()).origin);
    return origins;
  }

  TemporaryDirectory directory;
  std::string record_file = directory / "recorded.jsonl";
  Context context{device_options()};
};
using Origins = std::set<TuneOrigin>;

}  // namespace switchback::test
