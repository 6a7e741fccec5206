// SPDX-License-Identifier: Apache-2.0
// Tuner: the result of validating a candidate in another process.
#pragma once

#include <string>
#include <utility>

namespace switchback::autotune {

struct Validation {
  enum class Result {
    right,
    wrong,       ///< the candidate gave wrong results or crashed its process
    unvalidated  ///< not known, because the candidate could not be tried
  };
  Result result = Result::right;
  std::string why;

  static Validation wrong(std::string why) { return {Result::wrong, std::move(why)}; }
  static Validation unvalidated(std::string why) { return {Result::unvalidated, std::move(why)}; }
};

}  // namespace switchback::autotune
