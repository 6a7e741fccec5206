// SPDX-License-Identifier: Apache-2.0
// Measure: how long a call takes, by the host's clock or by that of the device it runs on.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "core/device.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

using Clock = std::chrono::steady_clock;
/// Where the time comes from; tests bring clocks of their own.
using Now = std::function<Clock::time_point()>;
Clock::time_point host_now();

Clock::duration from_seconds(double seconds);
double seconds_between(Clock::time_point from, Clock::time_point to);
double seconds_since(Clock::time_point start);
/// A point in time `seconds` from now.
Clock::time_point deadline_in(double seconds);

/// start() and stop() note two points in time, seconds() says how far apart they are. A device
/// notes them when its queue reaches them, and only seconds() waits for that.
using Stopwatch = core::DeviceTimer;
/// By the host's clock, or another one.
std::unique_ptr<Stopwatch> make_stopwatch(Now now = host_now);
/// By the clock of the Context's device.
std::unique_ptr<Stopwatch> make_stopwatch(const Context& context);

/// Waits for the call's end.
double seconds_of(Stopwatch& watch, const std::function<void()>& call);

/// The call as a graph of the Context's device: its work is recorded now and queued as a whole
/// whenever the result is called.
std::function<void()> captured(const Context& context, const std::function<void()>& call);

}  // namespace switchback::measure
