// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/ceiling.hpp"

#include <fmt/format.h>

#include "bench/cli/table.hpp"

namespace switchback::bench {

Ceiling::Ceiling(Context& context, const RegisterLoop& loop_) : loop(loop_) {
  for (;; steps *= 2) {
    const measure::Stats s = measure::stats_of(
        {.repeat = 2}, [&] { operations = run_on_all_threads(context, loop, steps); });
    if (s.min_ms > 2) break;
  }
}

measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations) {
  measure::Middle ratio = measure::speed_ratio(ceiling.times_ms, subject.times_ms);
  const double factor = operations / ceiling_operations;
  return {ratio.median * factor, ratio.mad * factor};
}

std::string share_text(const measure::Middle& share, std::int64_t samples) {
  std::string text = percent_text(share.median);
  if (samples < 3 || text == "!") return text;
  return fmt::format("{:.0f} ± {:.0f} %", 100 * share.median, 100 * share.mad);
}

}  // namespace switchback::bench
