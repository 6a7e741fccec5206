// SPDX-License-Identifier: Apache-2.0
// Entry zone: what a helper program of the tuner does. Some configurations may crash or hang: a
// kernel that never ran on this kind of machine, or an algorithm that cuBLASLt does not rank for
// the problem. A tuner runs such a configuration only after a helper process has run it and found
// its results right. That process is `switchback-validate`, which is installed with the library.
// Where the library is linked statically and not installed, write a program that calls
// validate_candidates(), and name it in TunerOptions::validator.
#pragma once

#include "switchback/export.h"
#include "switchback/language.hpp"

namespace switchback {

/// Seconds without a request after which validate_candidates returns, unless it is told otherwise.
inline constexpr double default_idle_s = 20;

/// Reads from file descriptor `requests` which configurations to validate, and writes the results
/// to `answers`. Returns the exit code of the program when there is nothing more to do: the other
/// side has closed `requests`, or asked nothing for `idle_s` seconds. Nothing else may be written
/// to `answers`.
///
///   int main() { return switchback::validate_candidates(0, 1); }
SWITCHBACK_API int validate_candidates(int requests, int answers,
                                       double idle_s = default_idle_s) noexcept;

}  // namespace switchback
