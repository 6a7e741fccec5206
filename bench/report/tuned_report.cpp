// SPDX-License-Identifier: Apache-2.0
#include "bench/report/tuned_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "autotune/search.hpp"
#include "bench/cli/table.hpp"

namespace switchback::bench {

namespace {

// A field counts as faster if its tuned configuration gains at least this share.
constexpr double noticeable_gain = 0.02;

std::string times(double speedup) {
  return speedup > 0 ? fmt::format("{:.2f}x", speedup) : "-";
}

// Calls the function with the name and the result of every field that was timed in its tuned and in
// its default configuration.
template <class Visit>
void for_each_field(const CaseResult& result, const Visit& visit) {
  for (std::size_t i = 0; i < all_fields; ++i)
    if (result.fields[i].default_stats.count > 0)
      visit(field_name(static_cast<Field>(i)), result.fields[i]);
}

// Whether a layer in mode auto chose a mode other than standard for at least one of two passes.
bool differs(std::string_view first_mode, std::string_view second_mode) {
  return first_mode != mode_name(Mode::standard) || second_mode != mode_name(Mode::standard);
}

}  // namespace

bool slower_beyond_noise(const measure::Middle& speedup, double rival_ms,
                         std::int64_t rounds) noexcept {
  // The speed-up has one ratio for each cycle of rounds.
  rounds /= static_cast<std::int64_t>(tuned_cycle);
  if (rounds < 1 || !(speedup.median > 0)) return false;
  // A loss below a microsecond is the cost of looking up the configuration, whose cache lines may
  // have been evicted, and of reading the clock twice.
  constexpr double least_ms = 1e-3;
  if (rival_ms / speedup.median - rival_ms < least_ms) return false;
  // With few ratios, their spread is itself only a guess, so the loss must be larger.
  const double error = (rounds < 10 ? 4 : 2.5) * measure::median_error(speedup, rounds);
  // On a shared machine, two layers with the same code have differed by 4 % over a whole run.
  // Smaller differences are not worth reporting.
  constexpr double least_loss = 0.05;
  return speedup.median < 1 - least_loss && 1 - speedup.median > error;
}

void TunedReport::add(const CaseResult& result, bool disturbed) {
  bool tuned = result.layer.has_value();
  for_each_field(result, [&](std::string_view, const FieldResult&) { tuned = true; });
  if (tuned) cases_.push_back({result, disturbed});
}

std::string TunedReport::table() const {
  Table table(
      {"case", "field gain", "best", "worst", "auto step", "forward + dX", "auto eval", "forward"},
      {"forward + dX", "forward"});
  for (const auto& [c, disturbed] : cases_) {
    std::vector<double> gains;
    for_each_field(c, [&](std::string_view, const FieldResult& field) {
      if (field.tuned) gains.push_back(field.tuned_speedup.median);
    });
    std::vector<std::string> row = {case_id(c.shape) + (disturbed ? " !" : "")};
    if (gains.empty()) {
      row.insert(row.end(), {"-", "-", "-"});
    } else {
      row.push_back(times(measure::middle(gains).median));
      row.push_back(times(*std::max_element(gains.begin(), gains.end())));
      row.push_back(times(*std::min_element(gains.begin(), gains.end())));
    }
    if (c.layer) {
      row.push_back(times(c.layer->step_speedup.median));
      row.push_back(c.layer->forward_mode + " + " + c.layer->dx_mode);
      row.push_back(times(c.layer->forward_speedup.median));
      row.push_back(c.layer->eval_mode);
    }
    table.add(std::move(row));
  }
  if (table.empty()) return {};
  return table.text() +
         "field gain: the median speed-up of the fields that ran another configuration, over the "
         "default in the same\n"
         "rounds. auto: the speed-up of a layer in mode auto over a standard one, in a training "
         "step and in inference.\n";
}

std::string TunedReport::sentence(const TunerCounters& counters) const {
  std::int64_t fields = 0;
  std::int64_t tuned = 0;
  std::int64_t faster = 0;
  std::string slower;
  const auto add_slower = [&](const CaseResult& c, std::string_view what,
                              const measure::Middle& speedup) {
    slower += fmt::format("{}{} {} ({:.2f}x)", slower.empty() ? "" : ", ", case_id(c.shape), what,
                          speedup.median);
  };
  std::vector<double> steps;
  for (const auto& [measured, disturbed] : cases_) {
    if (disturbed) continue;
    const CaseResult& c = measured;  // a lambda cannot capture a structured binding
    for_each_field(c, [&](std::string_view name, const FieldResult& field) {
      ++fields;
      // If the same code ran in both configurations, the difference is noise.
      if (!field.tuned) return;
      ++tuned;
      if (field.tuned_speedup.median >= 1 + noticeable_gain) ++faster;
      if (slower_beyond_noise(field.tuned_speedup, field.default_stats.median_ms,
                              field.stats.count))
        add_slower(c, name, field.tuned_speedup);
    });
    if (!c.layer) continue;
    steps.push_back(c.layer->step_speedup.median);
    if (differs(c.layer->forward_mode, c.layer->dx_mode) &&
        slower_beyond_noise(c.layer->step_speedup, c.layer->standard_step.median_ms,
                            c.layer->auto_step.count))
      add_slower(c, "auto step", c.layer->step_speedup);
    if (differs(c.layer->eval_mode, c.layer->eval_mode) &&
        slower_beyond_noise(c.layer->forward_speedup, c.layer->standard_forward.median_ms,
                            c.layer->auto_forward.count))
      add_slower(c, "auto eval", c.layer->forward_speedup);
  }
  std::string text = "Every case is in doubt, so it is unknown what tuning gains.\n";
  if (std::any_of(cases_.begin(), cases_.end(), [](const Measured& c) { return !c.disturbed; })) {
    text = fmt::format(
        "Of {} fields {} ran a configuration that is not the default, {} of them at least 2 % "
        "faster",
        fields, tuned, faster);
    if (!steps.empty())
      text += fmt::format(
          "; training steps in mode auto run at {:.2f}x to {:.2f}x the speed of standard ones",
          *std::min_element(steps.begin(), steps.end()),
          *std::max_element(steps.begin(), steps.end()));
    text += slower.empty() ? "; nothing is slower beyond noise.\n"
                           : fmt::format("; slower beyond noise: {}.\n", slower);
  }
  if (counters.refused > 0)
    text +=
        "Entries of the cache are not used here: 'switchback-bench cache explain' with the same "
        "shapes says why.\n";
  else if (counters.misses > 0 && counters.hits == 0)
    text +=
        "None of these problems was in the cache: run 'switchback-bench tune' with the same shapes "
        "first.\n";
  return text;
}

}  // namespace switchback::bench
