// SPDX-License-Identifier: Apache-2.0
// Models: times of a model's operations by name.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::models {

/// Time that the workers of an attention spent, summed over workers.
struct AttentionTimes {
  std::atomic<std::int64_t> products_ns = 0;
  std::atomic<std::int64_t> softmax_ns = 0;
};

/// Milliseconds of every instance of each named operation. Used by one thread.
class Profile {
 public:
  using Clock = std::chrono::steady_clock;

  /// Times one instance: from its construction to its destruction. A null profile times nothing.
  class Range {
   public:
    Range(Profile* profile, std::string_view name) noexcept : profile_(profile), name_(name) {
      if (profile_ != nullptr) begin_ = Clock::now();
    }
    ~Range() {
      if (profile_ != nullptr) profile_->add(name_, Clock::now() - begin_);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    Profile* profile_;
    std::string_view name_;
    Clock::time_point begin_;
  };

  void add(std::string_view name, Clock::duration time) {
    auto found = times_ms_.find(name);
    if (found == times_ms_.end()) found = times_ms_.emplace(std::string(name), 0).first;
    found->second.push_back(std::chrono::duration<double, std::milli>(time).count());
  }
  [[nodiscard]] const std::map<std::string, std::vector<double>, std::less<>>& times_ms()
      const noexcept {
    return times_ms_;
  }
  AttentionTimes attention;

 private:
  std::map<std::string, std::vector<double>, std::less<>> times_ms_;
};

}  // namespace switchback::models
