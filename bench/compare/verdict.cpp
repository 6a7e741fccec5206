// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/assert.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// More samples than this say no more about a ratio, and all pairs of them are compared.
constexpr std::size_t most_samples = 256;

std::vector<double> logs(std::span<const double> values) {
  std::vector<double> all;
  for (const double v : values)
    if (v > 0) all.push_back(std::log(v));
  return all;
}

// All calls of all runs; long series as medians of neighbours. Neighbours are alike on a busy
// machine, and a test that took each of them for news would be too sure.
std::vector<double> samples_of(const FieldTimes& field) {
  std::vector<double> all;
  for (const RunTimes& run : field.runs)
    all.insert(all.end(), run.times_ms.begin(), run.times_ms.end());
  const std::size_t group = (all.size() + most_samples - 1) / most_samples;
  if (group <= 1) return all;
  std::vector<double> grouped;
  for (std::size_t i = 0; i < all.size(); i += group)
    grouped.push_back(
        measure::middle(std::span(all).subspan(i, std::min(group, all.size() - i))).median);
  return grouped;
}

double fastest_tenth(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[(times.size() - 1) / 10];
}

double median_of_runs(const FieldTimes& field) {
  std::vector<double> medians;
  for (const RunTimes& run : field.runs)
    medians.push_back(run.median_ms);
  return measure::middle(medians).median;
}

void take_interval(Evidence& evidence, const Interval& of_logs) {
  evidence.ratio = std::exp(of_logs.value);
  evidence.low = std::exp(of_logs.low);
  evidence.high = std::exp(of_logs.high);
}

std::vector<double> medians_of(const FieldTimes& field) {
  std::vector<double> medians;
  for (const RunTimes& run : field.runs)
    medians.push_back(run.median_ms);
  return medians;
}

bool has_samples(const FieldTimes& field) {
  return std::all_of(field.runs.begin(), field.runs.end(),
                     [](const RunTimes& run) { return run.times_ms.size() >= 3; });
}

// The relative standard error of a median, from the spread; nothing if that is not known.
std::optional<double> relative_error(const FieldTimes& field) {
  const RunTimes& run = field.runs.back();
  if (!run.mad_ms || run.count < 3 || !(run.median_ms > 0)) return std::nullopt;
  return measure::median_error({run.median_ms, *run.mad_ms}, run.count) / run.median_ms;
}

Verdict direction(double ratio) {
  return ratio > 1 ? Verdict::slow : Verdict::fast;
}

// Whether a ratio is beyond the threshold on the same side as another one.
bool beyond(double ratio, double like, double threshold) {
  return like > 1 ? ratio >= 1 + threshold : ratio <= 1 / (1 + threshold);
}

// Whether the runs of both sides were made in turns, so that those of one place make a pair: each
// pair had ended before the next began.
bool in_turns(const FieldTimes& ref, const FieldTimes& now) {
  if (ref.runs.size() != now.runs.size()) return false;
  for (std::size_t i = 0; i < ref.runs.size(); ++i) {
    const std::string &a = ref.runs[i].started, &b = now.runs[i].started;
    if (a.empty() || b.empty()) return false;
    if (i > 0 && std::min(a, b) < std::max(ref.runs[i - 1].started, now.runs[i - 1].started))
      return false;
  }
  return true;
}

}  // namespace

std::string_view verdict_text(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::same:
      return "SAME";
    case Verdict::fast:
      return "FAST";
    case Verdict::slow:
      return "SLOW";
    default:
      return "AMBG";
  }
}

std::string_view basis_text(Basis basis) noexcept {
  switch (basis) {
    case Basis::pairs:
      return "pairs";
    case Basis::runs:
      return "runs";
    case Basis::samples:
      return "samples";
    case Basis::summary:
      return "summary";
    default:
      return "record";
  }
}

Evidence weigh(const FieldTimes& ref, const FieldTimes& now, const VerdictRules& rules) {
  SWITCHBACK_ASSERT(!ref.runs.empty() && !now.runs.empty());
  const double confidence = 1 - rules.alpha;
  Evidence evidence;
  if (ref.runs.size() >= least_runs && now.runs.size() >= least_runs) {
    if (in_turns(ref, now)) return weigh_pairs(medians_of(ref), medians_of(now), rules);
    evidence.basis = Basis::runs;
    const std::vector<double> a = logs(medians_of(ref)), b = logs(medians_of(now));
    evidence.ref_count = a.size();
    evidence.new_count = b.size();
    take_interval(evidence, shift(a, b, confidence));
    const RankSum test = rank_sum_test(a, b);
    evidence.p = test.p;
    evidence.method = test.method;
    return evidence;
  }
  if (has_samples(ref) && has_samples(now)) {
    evidence.basis = Basis::samples;
    const std::vector<double> a = samples_of(ref), b = samples_of(now);
    evidence.ref_count = a.size();
    evidence.new_count = b.size();
    take_interval(evidence, shift(logs(a), logs(b), confidence));
    const RankSum test = rank_sum_test(a, b);
    evidence.p = test.p;
    evidence.method = test.method;
    evidence.fast_ratio = fastest_tenth(b) / fastest_tenth(a);
    return evidence;
  }
  evidence.ratio = median_of_runs(now) / median_of_runs(ref);
  evidence.low = 0;
  evidence.high = infinity;
  evidence.ref_count = ref.runs.size();
  evidence.new_count = now.runs.size();
  const std::optional<double> a = relative_error(ref), b = relative_error(now);
  if (a && b) {
    evidence.basis = Basis::summary;
    const double half = normal_quantile(1 - rules.alpha / 2) * std::hypot(*a, *b);
    evidence.low = evidence.ratio * std::exp(-half);
    evidence.high = evidence.ratio * std::exp(half);
    evidence.ref_count = static_cast<std::size_t>(ref.runs.back().count);
    evidence.new_count = static_cast<std::size_t>(now.runs.back().count);
  }
  return evidence;
}

Evidence weigh_pairs(std::span<const double> ref_ms, std::span<const double> now_ms,
                     const VerdictRules& rules) {
  SWITCHBACK_ASSERT(ref_ms.size() == now_ms.size() && !ref_ms.empty());
  std::vector<double> differences;
  for (std::size_t i = 0; i < ref_ms.size(); ++i)
    differences.push_back(std::log(now_ms[i] / ref_ms[i]));
  Evidence evidence;
  evidence.basis = Basis::pairs;
  evidence.ref_count = evidence.new_count = differences.size();
  take_interval(evidence, paired_shift(differences, 1 - rules.alpha));
  const SignedRank test = signed_rank_test(differences);
  evidence.p = test.p;
  evidence.method = test.method;
  return evidence;
}

void adjust(std::span<Evidence* const> family) {
  std::vector<double> p;
  for (const Evidence* e : family)
    if (e->p) p.push_back(*e->p);
  const std::vector<double> adjusted = holm(p);
  std::size_t at = 0;
  for (Evidence* e : family)
    if (e->p) e->p_adjusted = adjusted[at++];
}

Judgement judge(const Evidence& e, const VerdictRules& rules) {
  const double most = 1 + rules.threshold;
  if (e.basis == Basis::record) return {Verdict::ambiguous, "medians alone: no spread, no samples"};
  if (e.low >= 1 / most && e.high <= most) return {Verdict::same, {}};
  if (e.low <= 1 && e.high >= 1)
    return {Verdict::ambiguous,
            std::isfinite(e.high) ? "the interval is wide and holds 1" : "too few for an interval"};
  if (!beyond(e.ratio, e.ratio, rules.threshold))
    return {Verdict::ambiguous, "less than the threshold, its interval more"};
  if (!e.p) return {Verdict::ambiguous, "no samples for a test"};
  if (e.p_adjusted.value_or(*e.p) > rules.alpha)
    return {Verdict::ambiguous, "chance among so many fields"};
  if (e.basis == Basis::samples && rules.run_noise > 0) {
    if (!beyond(e.ratio, e.ratio, rules.run_noise))
      return {Verdict::ambiguous, "less than what two runs may differ by"};
    if (!e.drift)
      return {Verdict::ambiguous, "few runs, and too few other fields to know the machine by"};
  }
  if (e.fast_ratio && !beyond(*e.fast_ratio, e.ratio, rules.threshold))
    return {Verdict::ambiguous, fmt::format("the fastest calls: {:.3f}", *e.fast_ratio)};
  if (e.drift && !beyond(e.ratio / *e.drift, e.ratio, rules.threshold))
    return {Verdict::ambiguous, fmt::format("all fields moved: {:.3f}", *e.drift)};
  return {direction(e.ratio), {}};
}

}  // namespace switchback::bench
