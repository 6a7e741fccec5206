// SPDX-License-Identifier: Apache-2.0
// Bench: ends a run cleanly on SIGINT and SIGTERM.
#pragma once

#include <csignal>

namespace switchback::bench {

/// While an object lives, the first SIGINT or SIGTERM only sets a flag, and a second one ends the
/// process. A signal that was ignored (nohup) stays ignored. SIGPIPE is ignored, so that a closed
/// pipe is reported as a failed write. Only one object may exist at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool requested() noexcept;

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
  struct sigaction pipe_ {};
};

}  // namespace switchback::bench
