// SPDX-License-Identifier: Apache-2.0
// Bench: the rate of an instruction in registers as a rival in a race, and shares of it.
#pragma once

#include <cstdint>
#include <string>

#include "bench/machine/ceilings.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// A register loop of about two milliseconds on all threads: long beside waking them.
struct Ceiling {
  RegisterLoop loop;
  long steps = 1024;
  double operations = 0;

  Ceiling(Context& context, const RegisterLoop& loop_);
};

/// (operations / time) / (ceiling's operations / its time), round by round.
measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations);

/// "82 ± 1 %"
std::string share_text(const measure::Middle& share, std::int64_t samples);

}  // namespace switchback::bench
