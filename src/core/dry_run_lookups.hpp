// SPDX-License-Identifier: Apache-2.0
// Core: the look-ups of tuned configurations that a dry run made (core/dry_run.hpp). The second
// run uses the same answers, so that both runs take the same path with one look-up.
#pragma once

#include <array>
#include <cstddef>

#include "core/config_source.hpp"

namespace switchback::core {

class DryRunLookups {
 public:
  void clear() noexcept { count_ = next_ = 0; }
  void add(const ConfigQuery& query, bool found, const ConfigChoice& choice) noexcept {
    if (count_ < most) answers_[count_++] = {query, choice, found};
  }
  /// Marks the answer that was added last as one that the operation cannot use.
  void refuse() noexcept {
    if (count_ > 0) answers_[count_ - 1].found = false;
  }
  /// Returns the next recorded answer, in the order of add(). Returns false if no answer is left,
  /// or if the next answer belongs to another query.
  bool next(const ConfigQuery& query, bool& found, ConfigChoice& choice) noexcept {
    if (next_ == count_ || answers_[next_].query != query) return false;
    const Answer& answer = answers_[next_++];
    found = answer.found;
    choice = answer.choice;
    return true;
  }

 private:
  struct Answer {
    ConfigQuery query;
    ConfigChoice choice;
    bool found = false;
  };
  // The most look-ups that are recorded. A backward makes five. Look-ups beyond this limit are made
  // again in the second run.
  static constexpr std::size_t most = 8;
  std::array<Answer, most> answers_;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace switchback::core
