// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/signals.hpp"

#include <utility>

namespace switchback::bench {

namespace {

volatile std::sig_atomic_t stop_requested = 0;

extern "C" void on_stop_signal(int) {
  stop_requested = 1;
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGINT, &standard, nullptr);
  sigaction(SIGTERM, &standard, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_requested = 0;
  struct sigaction stop {};
  stop.sa_handler = on_stop_signal;
  sigemptyset(&stop.sa_mask);
  for (const auto& [number, before] :
       {std::pair(SIGINT, &interrupt_), std::pair(SIGTERM, &terminate_)}) {
    sigaction(number, nullptr, before);
    if (before->sa_handler != SIG_IGN) sigaction(number, &stop, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGPIPE, &pipe_, nullptr);
}

bool StopSignals::requested() noexcept {
  return stop_requested != 0;
}

}  // namespace switchback::bench
