// SPDX-License-Identifier: Apache-2.0
// Measure: the time that a call takes, by the host's clock or by the clock of its device.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "core/device.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

using Clock = std::chrono::steady_clock;
/// The source of the time; tests use their own clocks.
using Now = std::function<Clock::time_point()>;
Clock::time_point host_now();

Clock::duration from_seconds(double seconds);
double seconds_between(Clock::time_point from, Clock::time_point to);
double seconds_since(Clock::time_point start);
/// A point in time `seconds` from now.
Clock::time_point deadline_in(double seconds);

/// start() and stop() mark two points in time; seconds() returns the time between them. A device
/// marks them when its queue reaches them, and only seconds() waits for that.
using Stopwatch = core::DeviceTimer;
/// A stopwatch that uses the clock `now`, by default the host's.
std::unique_ptr<Stopwatch> make_stopwatch(Now now = host_now);
/// A stopwatch that uses the clock of the Context's device.
std::unique_ptr<Stopwatch> make_stopwatch(const Context& context);

/// The time of a call, including the wait for its end.
double seconds_of(Stopwatch& watch, const std::function<void()>& call);

/// Captures a call as a graph of the Context's device. Calling the result queues all of the
/// captured work.
std::function<void()> captured(const Context& context, const std::function<void()>& call);

}  // namespace switchback::measure
