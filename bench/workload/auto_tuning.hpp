// SPDX-License-Identifier: Apache-2.0
// Bench: tunes layers in mode auto before a workload times them, with the options --tune and
// --cache.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "bench/workload/session.hpp"
#include "switchback/tuner.hpp"

namespace CLI {
class App;
}

namespace switchback::bench {

class AutoTuning {
 public:
  /// `seconds`: the default of --tune, the time that the tuner may spend on each size.
  explicit AutoTuning(double seconds) noexcept : seconds_(seconds) {}

  void add_options(CLI::App& command);
  /// Throws Error(invalid_argument) if the value of --tune is negative.
  void check_options() const;
  /// Attaches a tuner to the session's Context. It uses the cache that --cache names, or the
  /// default one.
  void open(Session& session);
  /// Whether the value of --tune gives the tuner any time.
  [[nodiscard]] bool wanted() const noexcept { return seconds_ > 0; }
  /// Whether layers in mode auto ask a tuner. Then each kind of layer may use another mode.
  [[nodiscard]] bool attached() const noexcept { return tuner_ != nullptr; }
  /// Measures the problems of layers of these shapes that are not in the cache, within the time of
  /// --tune. Ends early if the program is interrupted.
  void tune(Context& context, std::span<const TuneShape> shapes) const;

 private:
  double seconds_;
  std::string cache_;
  std::shared_ptr<Tuner> tuner_;
};

}  // namespace switchback::bench
