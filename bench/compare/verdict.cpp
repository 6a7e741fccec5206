// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/assert.hpp"
#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The most samples of a side that a test uses. More samples add little information, and the number
// of pairs of samples grows with their square.
constexpr std::size_t most_samples = 256;

std::vector<double> logs(std::span<const double> values) {
  std::vector<double> all;
  for (const double v : values)
    if (v > 0) all.push_back(std::log(v));
  return all;
}

// The samples of a field: all calls of all runs, or, in a long series, the medians of neighbouring
// calls. On a busy machine neighbouring calls are correlated, so a test that counted each of them
// as independent would be too confident.
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

// The relative standard error of a field's median, estimated from the spread; empty if the spread
// is not known.
std::optional<double> relative_error(const FieldTimes& field) {
  const RunTimes& run = field.runs.back();
  if (!run.mad_ms || run.count < 3 || !(run.median_ms > 0)) return std::nullopt;
  return measure::median_error({run.median_ms, *run.mad_ms}, run.count) / run.median_ms;
}

Verdict direction(double ratio) {
  return ratio > 1 ? Verdict::slow : Verdict::fast;
}

// Whether a ratio is beyond the threshold, on the same side of 1 as the ratio `like`.
bool beyond(double ratio, double like, double threshold) {
  return like > 1 ? ratio >= 1 + threshold : ratio <= 1 / (1 + threshold);
}

// Whether the runs of both sides alternated, so that runs at the same place form a pair: each pair
// ended before the next pair began.
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

namespace {

bool in_doubt(const FieldTimes& field) {
  const auto disturbed = std::count_if(field.runs.begin(), field.runs.end(),
                                       [](const RunTimes& run) { return run.disturbed; });
  return measure::too_many_disturbed(disturbed, std::ssize(field.runs));
}

}  // namespace

Evidence weigh(const FieldTimes& ref, const FieldTimes& now) {
  SWITCHBACK_ASSERT(!ref.runs.empty() && !now.runs.empty());
  const double confidence = 1 - alpha;
  Evidence evidence;
  evidence.disturbed = in_doubt(ref) || in_doubt(now);
  if (ref.runs.size() >= least_runs && now.runs.size() >= least_runs) {
    if (in_turns(ref, now)) return weigh_pairs(medians_of(ref), medians_of(now));
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
    const double half = normal_quantile(1 - alpha / 2) * std::hypot(*a, *b);
    evidence.low = evidence.ratio * std::exp(-half);
    evidence.high = evidence.ratio * std::exp(half);
    evidence.ref_count = static_cast<std::size_t>(ref.runs.back().count);
    evidence.new_count = static_cast<std::size_t>(now.runs.back().count);
  }
  return evidence;
}

namespace {

std::vector<double> log_medians(const FieldTimes& field) {
  std::vector<double> all;
  for (const RunTimes& run : field.runs)
    all.push_back(std::log(run.median_ms));
  return all;
}

}  // namespace

void weigh_among(Evidence& evidence, const BothSides& field, std::span<const BothSides> others) {
  const bool pairs = evidence.basis == Basis::pairs;
  if ((!pairs && evidence.basis != Basis::runs) || others.size() < least_others) return;
  // For each other field, the logarithms of its times relative to that field's median, so that all
  // fields have the same weight. The runs of REF come first, then those of NEW.
  std::size_t ref_runs = field.ref->runs.size(), now_runs = field.now->runs.size();
  if (pairs) ref_runs = now_runs = std::min(ref_runs, now_runs);
  const auto logs_of = [&](const BothSides& both) {
    std::vector<double> logs = log_medians(*both.ref), now = log_medians(*both.now);
    logs.resize(ref_runs);
    logs.insert(logs.end(), now.begin(), now.begin() + static_cast<std::ptrdiff_t>(now_runs));
    return logs;
  };
  std::vector<std::vector<double>> centred;
  for (const BothSides& other : others) {
    std::vector<double>& logs = centred.emplace_back(logs_of(other));
    const double middle = measure::middle(logs).median;
    for (double& value : logs)
      value -= middle;
  }
  std::vector<double> machine;  // how slow the machine was in each run, as a logarithm
  for (std::size_t run = 0; run < ref_runs + now_runs; ++run) {
    std::vector<double> of_run;
    for (const std::vector<double>& other : centred)
      of_run.push_back(other[run]);
    machine.push_back(measure::middle(of_run).median);
  }
  struct Split {
    std::vector<double> ref, now, differences;
  };
  const auto split = [&](const std::vector<double>& logs, bool without_machine) {
    Split parts;
    for (std::size_t i = 0; i < logs.size(); ++i)
      (i < ref_runs ? parts.ref : parts.now)
          .push_back(logs[i] - (without_machine ? machine[i] : 0));
    for (std::size_t i = 0; pairs && i < ref_runs; ++i)
      parts.differences.push_back(parts.now[i] - parts.ref[i]);
    return parts;
  };
  const auto moved = [&](const Split& parts) {
    return pairs ? measure::middle(parts.differences).median
                 : measure::middle(parts.now).median - measure::middle(parts.ref).median;
  };
  const Split own = split(logs_of(field), true);
  const Interval of_logs =
      pairs ? paired_shift(own.differences, 1 - alpha) : shift(own.ref, own.now, 1 - alpha);
  evidence.relative = {std::exp(of_logs.value), std::exp(of_logs.low), std::exp(of_logs.high)};
  if (pairs) {
    evidence.p_relative = signed_rank_test(own.differences).p;
    evidence.p = std::min(1.0, 2 * std::min(*evidence.p, *evidence.p_relative));
  } else {
    const RankSum test = rank_sum_test(own.ref, own.now);
    evidence.p = evidence.p_relative = test.p;
    evidence.method = test.method;
  }
  evidence.drift = std::exp(moved(split(machine, false)));
  std::vector<double> of_others;
  for (const std::vector<double>& other : centred)
    of_others.push_back(moved(split(other, true)));
  evidence.others_spread = 1.48 * measure::middle(of_others).mad;
}

Evidence weigh_pairs(std::span<const double> ref_ms, std::span<const double> now_ms) {
  SWITCHBACK_ASSERT(ref_ms.size() == now_ms.size() && !ref_ms.empty());
  std::vector<double> differences;
  for (std::size_t i = 0; i < ref_ms.size(); ++i)
    differences.push_back(std::log(now_ms[i] / ref_ms[i]));
  Evidence evidence;
  evidence.basis = Basis::pairs;
  evidence.ref_count = evidence.new_count = differences.size();
  take_interval(evidence, paired_shift(differences, 1 - alpha));
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

namespace {

// Judges a field by its change relative to the case's other fields in the same runs.
Judgement judge_relative(const Evidence& e, const VerdictRules& rules) {
  const double most = 1 + rules.threshold;
  const Interval& r = *e.relative;
  const auto within = [&](double low, double high) { return low >= 1 / most && high <= most; };
  if (within(e.low, e.high) && within(r.low, r.high)) return {Verdict::same, {}};
  const std::string all_moved = fmt::format("all fields changed: {:.3f}", *e.drift);
  if (r.low <= 1 && r.high >= 1)
    return {Verdict::ambiguous,
            e.low <= 1 && e.high >= 1 ? "the interval is wide and contains 1" : all_moved};
  if (!beyond(r.value, r.value, rules.threshold))
    return {Verdict::ambiguous, "within the threshold, but its interval is not"};
  // The factor by which Holm's correction raised this field's p-value. It applies to both tests of
  // pairs, whichever of them gave the smaller p-value.
  const double correction = *e.p > 0 ? e.p_adjusted.value_or(*e.p) / *e.p : 1;
  const double tests = e.basis == Basis::pairs ? 2 : 1;
  if (tests * correction * *e.p_relative > alpha)
    return {Verdict::ambiguous, "not significant among this many fields"};
  // Both runs of a pair found the machine in the same state, so the relative ratio decides. For
  // runs that did not alternate there are further conditions.
  if (e.basis == Basis::pairs)
    return {direction(r.value), fmt::format("relative to the other fields: {:.3f}", r.value)};
  const double effect = std::abs(std::log(r.value));
  if (effect < std::abs(std::log(*e.drift))) return {Verdict::ambiguous, all_moved};
  if (effect < 3 * e.others_spread)
    return {Verdict::ambiguous, fmt::format("other fields differ by {:.1f} % as well",
                                            100 * std::expm1(e.others_spread))};
  return {direction(r.value), fmt::format("relative to the other fields: {:.3f}", r.value)};
}

// If a field's own ratio does not decide, the ratio relative to the other fields may decide, but
// only for pairs. Otherwise returns the verdict `open`.
Judgement or_relative(Judgement open, const Evidence& e, const VerdictRules& rules) {
  if (e.basis != Basis::pairs || !e.relative) return open;
  // If the ratio relative to the other fields points the other way than the field's own ratio, it
  // decides nothing.
  if ((e.ratio > 1) != (e.relative->value > 1)) return open;
  const Judgement relative = judge_relative(e, rules);
  const bool decides = relative.verdict == Verdict::slow || relative.verdict == Verdict::fast;
  return decides ? relative : open;
}

}  // namespace

Judgement judge(const Evidence& e, const VerdictRules& rules) {
  const double most = 1 + rules.threshold;
  if (e.disturbed) return {Verdict::ambiguous, "disturbed"};
  if (e.basis == Basis::runs && e.relative && rules.run_noise > 0) return judge_relative(e, rules);
  if (e.basis == Basis::record) return {Verdict::ambiguous, "only medians: no spread, no samples"};
  if (e.low >= 1 / most && e.high <= most) return {Verdict::same, {}};
  const auto open = [&](const char* why) {
    return or_relative({Verdict::ambiguous, why}, e, rules);
  };
  if (e.low <= 1 && e.high >= 1)
    return open(std::isfinite(e.high) ? "the interval is wide and contains 1"
                                      : "too few values for an interval");
  if (!beyond(e.ratio, e.ratio, rules.threshold))
    return open("within the threshold, but its interval is not");
  if (!e.p) return {Verdict::ambiguous, "no samples for a test"};
  if (e.p_adjusted.value_or(*e.p) > alpha) return open("not significant among this many fields");
  if (e.basis == Basis::samples && rules.run_noise > 0) {
    if (!beyond(e.ratio, e.ratio, rules.run_noise))
      return {Verdict::ambiguous, "less than two runs of one program may differ"};
    if (!e.drift)
      return {Verdict::ambiguous,
              "few runs, and too few other fields to rule out a change of the machine"};
  }
  if (e.basis == Basis::runs && !beyond(e.ratio, e.ratio, rules.run_noise))
    return {Verdict::ambiguous,
            "not alternating, and too few other fields to rule out a change of the machine"};
  if (e.fast_ratio && !beyond(*e.fast_ratio, e.ratio, rules.threshold))
    return {Verdict::ambiguous, fmt::format("the fastest calls: {:.3f}", *e.fast_ratio)};
  if (e.basis == Basis::samples && e.drift && !beyond(e.ratio / *e.drift, e.ratio, rules.threshold))
    return {Verdict::ambiguous, fmt::format("all fields changed: {:.3f}", *e.drift)};
  return {direction(e.ratio), {}};
}

}  // namespace switchback::bench
