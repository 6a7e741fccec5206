// SPDX-License-Identifier: Apache-2.0
// Bench: the measurements for mode auto that a workload makes before it times its layers, with the
// options --tune and --cache.
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
  /// `seconds`: the default of --tune.
  explicit AutoTuning(double seconds) noexcept : seconds_(seconds) {}

  void add_options(CLI::App& command);
  /// Throws for a negative --tune.
  void check_options() const;
  /// Attaches a tuner to the session's Context, with the given cache or the default one.
  void open(Session& session);
  /// Whether --tune gives the tuner any time.
  [[nodiscard]] bool wanted() const noexcept { return seconds_ > 0; }
  /// Whether layers in mode auto ask a tuner. Then each kind of layer has its own mode.
  [[nodiscard]] bool attached() const noexcept { return tuner_ != nullptr; }
  /// Measures the problems of these shapes that are not in the cache, within the time of --tune.
  /// Ends early if the program is interrupted.
  void tune(Context& context, std::span<const TuneShape> shapes) const;

 private:
  double seconds_;
  std::string cache_;
  std::shared_ptr<Tuner> tuner_;
};

}  // namespace switchback::bench
