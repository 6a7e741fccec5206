// SPDX-License-Identifier: Apache-2.0
// Studies: trains a byte-level decoder on a text, to compare the losses of the modes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/workload/session.hpp"
#include "studies/transformer/setting.hpp"

namespace switchback::bench::transformer {

struct TrainingOptions {
  int steps = 500;
  int evaluate_every = 50;
  /// The peak learning rate: the rate rises for 5 % of the steps, then falls to a tenth of the
  /// peak.
  float learning_rate = 1e-3f;
};

/// The losses of one training, in nats per byte.
struct LossCurve {
  std::string size = {};
  Mode mode = Mode::standard;
  std::string variant = {};  ///< text of Setting::variant()
  std::uint64_t seed = 0;
  std::vector<int> steps = {};
  std::vector<double> training = {};  ///< mean loss since the previous evaluation
  /// Loss on held-out text: always the same pieces of the last tenth of the text.
  std::vector<double> validation = {};
  std::vector<double> step_ms = {};
  std::vector<double> host_ms = {};  ///< milliseconds until the calls of a step had returned
  std::size_t peak_bytes = 0;

  /// The mode, and how the layers differ from its defaults: "rowwise, dw int8_block".
  [[nodiscard]] std::string name() const;
};

/// Reads a text file. Throws Error: io_error, or invalid_argument if it is shorter than `least`
/// bytes.
std::string read_text(const std::string& file, std::size_t least);

/// Trains a decoder. Trainings with the same seed start from the same weights and use the same
/// pieces of the text. Throws Interrupted.
LossCurve train(Session& session, const Setting& setting, Mode mode, std::uint64_t seed,
                const std::string& text, const TrainingOptions& options);

/// A table for each size: the validation losses of each mode at each evaluation, as mean and
/// standard deviation over seeds, and the ratio of the final loss to that of mode standard with the
/// same seeds.
std::string summary_of(std::span<const LossCurve> curves);

/// The loss curve in a record that `transformer --train` wrote.
LossCurve curve_of(const Json& record);
/// The final validation loss divided by that of mode standard with the same size and seed. Empty if
/// there is no such curve of mode standard.
std::optional<double> loss_ratio(std::span<const LossCurve> curves, const LossCurve& of);

/// A chart in SVG of validation losses over steps: a colour for each mode, a line for each seed.
std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title);

}  // namespace switchback::bench::transformer
