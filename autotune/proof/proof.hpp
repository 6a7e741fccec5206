// SPDX-License-Identifier: Apache-2.0
// Tuner: the result of validating a candidate in another process.
#pragma once

#include <string>
#include <utility>

namespace switchback::autotune {

struct Proof {
  enum class Result {
    right,
    wrong,    ///< it gave wrong results or crashed its process; see `why`
    unproven  ///< not known: it could not be tried; see `why`
  };
  Result result = Result::right;
  std::string why;

  static Proof wrong(std::string why) { return {Result::wrong, std::move(why)}; }
  static Proof unproven(std::string why) { return {Result::unproven, std::move(why)}; }
};

}  // namespace switchback::autotune
