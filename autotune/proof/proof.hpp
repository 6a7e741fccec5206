// SPDX-License-Identifier: Apache-2.0
// Tuner: what came of proving a candidate in another process.
#pragma once

#include <string>
#include <utility>

namespace switchback::autotune {

struct Proof {
  enum class Result {
    right,
    wrong,    ///< it gave wrong results, or ended its process: `why`
    unproven  ///< nothing is known of it: it could not be tried, because of `why`
  };
  Result result = Result::right;
  std::string why;

  static Proof wrong(std::string why) { return {Result::wrong, std::move(why)}; }
  static Proof unproven(std::string why) { return {Result::unproven, std::move(why)}; }
};

}  // namespace switchback::autotune
