// SPDX-License-Identifier: Apache-2.0
// Models: measures the times of a model's operations and collects them by name.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.hpp"

namespace switchback::models {

/// The time that CPU threads spent in the two parts of attention, summed over the threads.
struct AttentionTimes {
  std::atomic<std::int64_t> products_ns = 0;
  std::atomic<std::int64_t> softmax_ns = 0;
};

/// Collects the milliseconds of every run of each named operation. For one thread.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;
  using Times = std::map<std::string, std::vector<double>, std::less<>>;

  /// Without a runtime, times operations on the CPU. With a runtime, times them on the device's
  /// stream, without waiting for the stream.
  explicit Profile(std::shared_ptr<core::DeviceRuntime> runtime = nullptr) noexcept
      : runtime_(std::move(runtime)) {}

  /// Times one run of an operation, from construction to destruction. With a null profile it does
  /// nothing.
  class Range {
   public:
    Range(Profile* profile, std::string_view name) : profile_(profile), name_(name) {
      if (profile_ == nullptr) return;
      if (profile_->runtime_ != nullptr) {
        timer_ = profile_->runtime_->make_timer();
        timer_->start();
      }
      begin_ = Clock::now();
    }
    ~Range() {
      if (profile_ == nullptr) return;
      const auto time = Clock::now() - begin_;
      try {
        if (timer_ == nullptr) {
          profile_->add(name_, time);
        } else {
          timer_->stop();
          profile_->queued_.push_back({std::string(name_), std::move(timer_)});
        }
      } catch (...) {  // the run is not counted; the operation reports its own error
      }
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    Profile* profile_;
    std::string_view name_;
    std::unique_ptr<core::DeviceTimer> timer_;
    Clock::time_point begin_;
  };

  void add(std::string_view name, Clock::duration time) {
    add_ms(name, std::chrono::duration<double, std::milli>(time).count());
  }
  /// All times so far. Waits for the timed operations of a device's stream.
  [[nodiscard]] const Times& times_ms() {
    for (const Queued& queued : queued_)
      add_ms(queued.name, 1e3 * queued.timer->seconds());
    queued_.clear();
    return times_ms_;
  }
  AttentionTimes attention;

 private:
  struct Queued {
    std::string name;
    std::unique_ptr<core::DeviceTimer> timer;
  };
  void add_ms(std::string_view name, double ms) {
    auto found = times_ms_.find(name);
    if (found == times_ms_.end()) found = times_ms_.emplace(std::string(name), 0).first;
    found->second.push_back(ms);
  }
  std::shared_ptr<core::DeviceRuntime> runtime_;
  std::vector<Queued> queued_;
  Times times_ms_;
};

}  // namespace switchback::models
