// SPDX-License-Identifier: Apache-2.0
// Studies: fits a byte-level decoder to a text, to compare the losses of modes.
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
  /// The peak learning rate: it rises for 5 % of the steps and falls to a tenth.
  float learning_rate = 1e-3f;
};

/// The losses of one training, in nats per byte.
struct LossCurve {
  std::string size = {};
  Mode mode = Mode::standard;
  std::string variant = {};  ///< Setting::variant
  std::uint64_t seed = 0;
  std::vector<int> steps = {};
  std::vector<double> training = {};  ///< mean since the previous evaluation
  /// Always on the same pieces of the last tenth of the text.
  std::vector<double> validation = {};
  std::vector<double> step_ms = {};
  std::vector<double> host_ms = {};  ///< until a step's calls had returned
  std::size_t peak_bytes = 0;

  /// The mode and other differences: "rowwise, dw int8_block".
  [[nodiscard]] std::string name() const;
};

/// The bytes of a file. Throws Error: io_error, or invalid_argument if it is shorter than `least`.
std::string read_text(const std::string& file, std::size_t least);

/// Trainings with the same seed start from the same weights and use the same pieces of the text.
/// Throws Interrupted.
LossCurve train(Session& session, const Setting& setting, Mode mode, std::uint64_t seed,
                const std::string& text, const TrainingOptions& options);

/// The validation losses of each mode at each evaluation, as means over seeds with their standard
/// deviation; at the end, the ratios to mode standard with the same seeds. One table for each size.
std::string summary_of(std::span<const LossCurve> curves);

/// The training of a record, as `transformer --train` writes it.
LossCurve curve_of(const Json& record);
/// The final validation loss divided by that of mode standard with the same size and seed. Empty
/// without such a training.
std::optional<double> loss_ratio(std::span<const LossCurve> curves, const LossCurve& of);

/// Validation losses over steps as SVG: a colour for each mode, a line for each seed.
std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title);

}  // namespace switchback::bench::transformer
