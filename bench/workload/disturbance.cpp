// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/disturbance.hpp"

#include <fmt/format.h>

namespace switchback::bench {

void put_disturbance(const measure::Disturbance& d, Json& line) {
  line["discarded_rounds"] = d.discarded;
  line["disturbed_rounds"] = d.disturbed;
  line["preempted_rounds"] = d.preempted;
  line["loaded_rounds"] = d.loaded;
  line["slow_clock_rounds"] = d.slow_clock;
  line["steal_cores"] = d.steal_cores ? Json(*d.steal_cores) : Json(nullptr);
}

std::vector<Column> disturbance_columns() {
  return {{.name = "discarded_rounds", .meaning = "disturbed, and measured again"},
          {.name = "disturbed_rounds", .meaning = "disturbed, and kept"},
          {.name = "preempted_rounds", .meaning = "the system took a core away"},
          {.name = "loaded_rounds", .meaning = "other programs or the host were in the way"},
          {.name = "slow_clock_rounds", .meaning = "the core ran slower than in others"},
          {.name = "steal_cores", .meaning = "the host's part of what others used"},
          {.name = "disturbed", .meaning = "more than a quarter of the rounds kept"}};
}

std::string doubt_mark(const measure::Disturbance& disturbance) {
  return disturbance.in_doubt() ? " !" : "";
}

std::string disturbance_text(const measure::Disturbance& total, std::size_t marked,
                             std::size_t all) {
  std::string text;
  if (total.discarded > 0 || total.disturbed > 0)
    text += fmt::format(
        "{} of {} rounds were disturbed and discarded, {} disturbed ones remain: a core was taken "
        "away in {}, others were in the way in {}, the clock was slow in {}.\n",
        total.discarded, total.rounds, total.disturbed, total.preempted, total.loaded,
        total.slow_clock);
  if (marked > 0)
    text += fmt::format(
        "{} of {} rows {} in doubt (!): more than a quarter of their rounds were disturbed.\n",
        marked, all, marked == 1 ? "is" : "are");
  return text;
}

}  // namespace switchback::bench
