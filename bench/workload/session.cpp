// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/session.hpp"

#include "bench/cli/signals.hpp"
#include "bench/machine/machine.hpp"
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

}  // namespace switchback::bench
