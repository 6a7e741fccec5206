// SPDX-License-Identifier: Apache-2.0
#include "measure/stopwatch.hpp"

#include <utility>

#include "core/context_state.hpp"

namespace switchback::measure {

namespace {

class HostStopwatch final : public Stopwatch {
 public:
  explicit HostStopwatch(Now now) : now_(std::move(now)) {}
  void start() override { start_ = now_(); }
  void stop() override { stop_ = now_(); }
  double seconds() override { return seconds_between(start_, stop_); }

 private:
  Now now_;
  Clock::time_point start_, stop_;
};

}  // namespace

Clock::time_point host_now() {
  return Clock::now();
}

Clock::duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double seconds_since(Clock::time_point start) {
  return seconds_between(start, Clock::now());
}

Clock::time_point deadline_in(double seconds) {
  return Clock::now() + from_seconds(seconds);
}

std::unique_ptr<Stopwatch> make_stopwatch(Now now) {
  return std::make_unique<HostStopwatch>(std::move(now));
}

std::unique_ptr<Stopwatch> make_stopwatch(const Context& context) {
  const auto& runtime = context.state().runtime;
  return runtime != nullptr ? runtime->make_timer() : make_stopwatch();
}

double seconds_of(Stopwatch& watch, const std::function<void()>& call) {
  watch.start();
  call();
  watch.stop();
  return watch.seconds();
}

std::function<void()> captured(const Context& context, const std::function<void()>& call) {
  core::DeviceRuntime& runtime = *context.state().runtime;
  runtime.begin_capture();
  call();
  return [graph = std::shared_ptr<core::DeviceGraph>(runtime.end_capture())] { graph->launch(); };
}

}  // namespace switchback::measure
