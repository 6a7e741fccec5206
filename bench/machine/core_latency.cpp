// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/core_latency.hpp"

#include <algorithm>
#include <atomic>
#include <optional>

#include "core/context_state.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::bench {

namespace {

using measure::Clock;

constexpr int round_trips = 500;
constexpr int attempts = 3;
constexpr double patience_s = 5e-3;  // for a thread that may not be running

// A number that two threads count up in turns.
class Rally {
 public:
  // The thread that begins; the time of one way, or nothing if the other one did not come.
  std::optional<double> begin() {
    const Clock::time_point deadline = measure::deadline_in(patience_s);
    if (!turn(0, deadline)) return std::nullopt;
    const Clock::time_point before = Clock::now();
    for (int i = 1; i < round_trips; ++i)
      if (!turn(2 * i, deadline)) return std::nullopt;
    return measure::seconds_between(before, Clock::now()) / (2 * (round_trips - 1));
  }
  void answer() {
    const Clock::time_point deadline = measure::deadline_in(patience_s);
    for (int i = 0; i < round_trips; ++i) {
      if (!wait(2 * i + 1, deadline)) return;
      count_.store(2 * i + 2, std::memory_order_release);
    }
  }

 private:
  bool turn(int from, Clock::time_point deadline) {
    count_.store(from + 1, std::memory_order_release);
    return wait(from + 2, deadline);
  }
  bool wait(int value, Clock::time_point deadline) const {
    constexpr int looks = 4096;  // between two looks at the clock
    do {
      for (int i = 0; i < looks; ++i)
        if (count_.load(std::memory_order_acquire) == value) return true;
    } while (Clock::now() < deadline);
    return false;
  }

  alignas(128) std::atomic<int> count_ = 0;  // nothing else on its line, nor on the next one
};

// Of the first thread and another one.
std::optional<double> one_way_s(core::Threads& threads, int other) {
  Rally rally;
  std::optional<double> one_way;
  // A thread that is late may leave its task to one that has had its own. Waits have an end.
  bool begun = false;
  bool answered = false;
  threads.for_each(threads.count(), [&](std::int64_t, int worker) {
    if (worker == 0 && !begun) {
      begun = true;
      one_way = rally.begin();
    } else if (worker == other && !answered) {
      answered = true;
      rally.answer();
    }
  });
  return one_way;
}

}  // namespace

CoreLatency measure_core_latency(Context& context) {
  CoreLatency latency;
  if (context.state().runtime != nullptr) return latency;
  core::Threads& threads = context.state().threads;
  for (int other = 1; other < threads.count(); ++other) {
    double best_s = 0;
    for (int i = 0; i < attempts; ++i)
      if (const std::optional<double> s = one_way_s(threads, other); s)
        best_s = best_s > 0 ? std::min(best_s, *s) : *s;
    if (best_s == 0) continue;
    const double ns = best_s * 1e9;
    latency.least_ns = latency.least_ns > 0 ? std::min(latency.least_ns, ns) : ns;
    latency.most_ns = std::max(latency.most_ns, ns);
  }
  return latency;
}

nlohmann::ordered_json to_json(const CoreLatency& latency) {
  if (latency.most_ns == 0) return nullptr;
  return nlohmann::ordered_json::array({latency.least_ns, latency.most_ns});
}

}  // namespace switchback::bench
