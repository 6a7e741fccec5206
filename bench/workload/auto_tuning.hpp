// SPDX-License-Identifier: Apache-2.0
// Bench: what a workload measures for mode auto before it times its layers, with the options --tune
// and --cache.
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
  /// Attaches a tuner to the session's Context, with the cache that was named or the usual one.
  void open(Session& session);
  /// Whether --tune gives the tuner any time.
  [[nodiscard]] bool wanted() const noexcept { return seconds_ > 0; }
  /// Whether layers in mode auto ask a tuner: each kind of layer then has a mode of its own.
  [[nodiscard]] bool attached() const noexcept { return tuner_ != nullptr; }
  /// Measures what the cache lacks of these shapes, in the time that --tune allows. Ends early if
  /// the program is interrupted.
  void tune(Context& context, std::span<const TuneShape> shapes) const;

 private:
  double seconds_;
  std::string cache_;
  std::shared_ptr<Tuner> tuner_;
};

}  // namespace switchback::bench
