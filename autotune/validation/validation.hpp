// SPDX-License-Identifier: Apache-2.0
// Tuner: the result of validating a candidate in another process.
#pragma once

#include <string>
#include <utility>

namespace switchback::autotune {

struct Validation {
  enum class Result {
    right,
    wrong,       ///< it gave wrong results or crashed its process; see `why`
    unvalidated  ///< not known: it could not be tried; see `why`
  };
  Result result = Result::right;
  std::string why;

  static Validation wrong(std::string why) { return {Result::wrong, std::move(why)}; }
  static Validation unvalidated(std::string why) { return {Result::unvalidated, std::move(why)}; }
};

}  // namespace switchback::autotune
