// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/disturbance.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  return {{.name = "discarded_rounds", .meaning = "disturbed rounds that were measured again"},
          {.name = "disturbed_rounds", .meaning = "disturbed rounds that were kept"},
          {.name = "preempted_rounds", .meaning = "rounds in which the system took a core away"},
          {.name = "loaded_rounds",
           .meaning = "rounds in which other programs or the host used the cores"},
          {.name = "slow_clock_rounds",
           .meaning = "rounds in which the clock was slower than in others"},
          {.name = "steal_cores", .meaning = "the host's part of the cores that others used"},
          {.name = "disturbed",
           .meaning = "whether more than a quarter of the kept rounds were disturbed"}};
}

std::string doubt_mark(const measure::Disturbance& disturbance) {
  return disturbance.in_doubt() ? " !" : "";
}

std::string disturbance_text(const measure::Disturbance& total) {
  if (total.discarded == 0 && total.disturbed == 0) return {};
  return fmt::format(
      "{} of {} rounds were disturbed and discarded, {} disturbed ones remain: a core was taken "
      "away in {}, others used the cores in {}, the clock was slow in {}.\n",
      total.discarded, total.rounds, total.disturbed, total.preempted, total.loaded,
      total.slow_clock);
}

void Doubt::add(std::string_view why, std::optional<double> others_cores) {
  ++rows_;
  if (why.empty()) return;
  ++doubtful_;
  ++reasons_[std::string(why)];
  others_cores_ = std::max(others_cores_, others_cores.value_or(0));
}

std::string Doubt::sentence() const {
  if (doubtful_ == 0) return {};
  std::string why;
  for (const auto& [reason, count] : reasons_)
    why += fmt::format("{}{} ({})", why.empty() ? "" : ", ", reason, count);
  if (others_cores_ > 0) why += fmt::format("; they used up to {:.1f} cores", others_cores_);
  const std::string rows = fmt::format("{} of {} rows {} in doubt (!): {}.", doubtful_, rows_,
                                       doubtful_ == 1 ? "is" : "are", why);
  return is_about_all()
             ? fmt::format("Do not trust these numbers: {} Measure again on a quiet machine.\n",
                           rows)
             : rows + "\n";
}

}  // namespace switchback::bench
