// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/grid/filter.hpp"
#include "bench/run/fields.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

namespace {

// The names of the fields that an item of --fields means: it is the name of a field, of a sum, or
// of a group of fields.
std::set<std::string> names_meant(const std::string& item) {
  std::set<std::string> names{item};
  for (const FieldSpec& spec : field_table())
    if (item == spec.group) names.insert(std::string(spec.name));
  for (const SumInfo& sum : sum_table())
    if ("time_" + item == sum.name)
      for (const Field part : sum.parts)
        names.insert(std::string(field_name(part)));
  return names;
}

std::set<std::string> chosen_fields(const CompareSelection& selection, const Side& ref,
                                    const Side& now) {
  std::set<std::string> known, chosen;
  for (const Side* side : {&ref, &now})
    for (const CaseTimes& c : side->cases)
      for (const FieldTimes& f : c.fields)
        known.insert(f.name);
  if (selection.fields.empty()) return known;
  for (const std::string& item : selection.fields) {
    if (item == "all") return known;
    bool any = false;
    for (const std::string& name : names_meant(item))
      if (known.contains(name)) {
        chosen.insert(name);
        any = true;
      }
    core::require(any, "--fields '{}': neither file has times of this field; they have {}", item,
                  fmt::join(known, ", "));
  }
  return chosen;
}

double median_of(const FieldTimes& field) {
  std::vector<double> medians;
  for (const RunTimes& run : field.runs)
    medians.push_back(run.median_ms);
  return measure::middle(medians).median;
}

bool any_disturbed(const FieldTimes& field) {
  return std::any_of(field.runs.begin(), field.runs.end(),
                     [](const RunTimes& run) { return run.disturbed; });
}

// Sets the drift of each field: the median change of the case's other fields. It is used when there
// are too few runs to know how much two runs of one program differ. With fewer than four other
// fields, the median could be the change of a single field.
void add_drift(CaseComparison& c) {
  for (FieldComparison& f : c.fields) {
    if (f.evidence.basis != Basis::samples) continue;
    std::vector<double> others;
    for (const FieldComparison& other : c.fields)
      if (&other != &f && !other.sum) others.push_back(other.evidence.ratio);
    if (others.size() >= least_others) f.evidence.drift = measure::middle(others).median;
  }
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json side_json(const Side& side) {
  return {{"path", side.path},
          {"machine", side.machine.empty() ? Json(nullptr) : Json(side.machine)},
          {"commit", side.commit.empty() ? Json(nullptr) : Json(side.commit)},
          {"run_file", side.has_run_file}};
}

std::string interval_text(const Evidence& e) {
  return std::isfinite(e.high) ? fmt::format("{:.3f}..{:.3f}", e.low, e.high) : "-";
}

std::string p_text(const std::optional<double>& p) {
  if (!p) return "-";
  return *p < 0.0001 ? "<0.0001" : fmt::format("{:.4f}", *p);
}

std::string count_text(const Evidence& e) {
  return fmt::format("{} {}/{}", basis_text(e.basis), e.ref_count, e.new_count);
}

std::string side_text(const char* label, const Side& side) {
  return fmt::format("{}: {}{}{}\n", label, side.path,
                     side.machine.empty() ? "" : fmt::format("; {}", side.machine),
                     side.commit.empty() ? "" : fmt::format("; {}", side.commit));
}

}  // namespace

bool selects(const std::vector<std::string>& filters, const CaseTimes& c) {
  if (filters.empty()) return true;
  std::optional<Case> shape;
  try {
    shape = parse_shape(c.id);
  } catch (const Error&) {
  }
  return std::any_of(filters.begin(), filters.end(), [&](const std::string& expression) {
    if (shape && c.workload == "run") return Filter(expression).matches(*shape);
    const std::vector<std::string> terms = split_list(expression);
    return std::all_of(terms.begin(), terms.end(), [&](const std::string& term) {
      const std::size_t at = term.find('=');
      if (at == std::string::npos) return c.name().find(term) != std::string::npos;
      return std::any_of(c.key.begin(), c.key.end(), [&](const auto& member) {
        return member.first == term.substr(0, at) && member.second == term.substr(at + 1);
      });
    });
  });
}

void add_relative(CaseComparison& c, const CaseTimes& ref, const CaseTimes& now) {
  for (FieldComparison& f : c.fields) {
    if (f.evidence.basis != Basis::runs && f.evidence.basis != Basis::pairs) continue;
    const BothSides own = {ref.field(f.field), now.field(f.field)};
    std::vector<BothSides> others;
    for (const FieldComparison& other : c.fields) {
      const BothSides both = {ref.field(other.field), now.field(other.field)};
      if (&other != &f && !other.sum && both.ref->runs.size() == own.ref->runs.size() &&
          both.now->runs.size() == own.now->runs.size())
        others.push_back(both);
    }
    weigh_among(f.evidence, own, others);
  }
}

void judge_all(std::vector<CaseComparison>& cases, const VerdictRules& rules) {
  std::vector<Evidence*> family;
  for (CaseComparison& c : cases)
    for (FieldComparison& f : c.fields)
      family.push_back(&f.evidence);
  adjust(family);
  for (CaseComparison& c : cases)
    for (FieldComparison& f : c.fields)
      f.judgement = judge(f.evidence, rules);
}

SideComparison compare(Side ref, Side now, const CompareSelection& selection,
                       const VerdictRules& rules) {
  const std::set<std::string> chosen = chosen_fields(selection, ref, now);
  const auto drop_cases = [&](Side& side) {
    std::erase_if(side.cases, [&](const CaseTimes& c) { return !selects(selection.filters, c); });
  };
  drop_cases(ref);
  drop_cases(now);
  core::require(!ref.cases.empty() || !now.cases.empty(),
                "--filter: no case of either file matches");
  SideComparison result;
  result.rules = rules;
  std::vector<bool> matched(now.cases.size(), false);
  for (const CaseTimes& a : ref.cases) {
    const CaseTimes* b = nullptr;
    for (std::size_t i = 0; i < now.cases.size() && b == nullptr; ++i) {
      if (matched[i] || !same_case(a, now.cases[i])) continue;
      matched[i] = true;
      b = &now.cases[i];
    }
    if (b == nullptr) {
      result.only_ref.push_back(a.name());
      continue;
    }
    CaseComparison c{.ref = a, .fields = {}};
    for (const FieldTimes& before : a.fields) {
      if (!chosen.contains(before.name)) continue;
      const FieldTimes* after = b->field(before.name);
      if (after == nullptr) {
        result.only_ref.push_back(a.name() + ": " + before.name);
        continue;
      }
      c.fields.push_back({.field = before.name,
                          .ref_ms = median_of(before),
                          .new_ms = median_of(*after),
                          .ref_engine = before.engine,
                          .new_engine = after->engine,
                          .ref_disturbed = any_disturbed(before),
                          .new_disturbed = any_disturbed(*after),
                          .sum = before.sum,
                          .evidence = weigh(before, *after),
                          .judgement = {}});
    }
    for (const FieldTimes& after : b->fields)
      if (chosen.contains(after.name) && a.field(after.name) == nullptr)
        result.only_new.push_back(b->name() + ": " + after.name);
    add_drift(c);
    add_relative(c, a, *b);
    if (!c.fields.empty()) result.cases.push_back(std::move(c));
  }
  for (std::size_t i = 0; i < now.cases.size(); ++i)
    if (!matched[i]) result.only_new.push_back(now.cases[i].name());
  if (result.cases.empty())
    core::fail(Status::invalid_argument,
               "{} and {} have no case in common: the first has '{}', the second '{}'", ref.path,
               now.path, ref.cases.empty() ? "no selected case" : ref.cases.front().name(),
               now.cases.empty() ? "no selected case" : now.cases.front().name());
  judge_all(result.cases, rules);
  result.ref = std::move(ref);
  result.now = std::move(now);
  return result;
}

Counts SideComparison::counts() const {
  Counts counts;
  for (const CaseComparison& c : cases)
    for (const FieldComparison& f : c.fields) {
      const Verdict v = f.judgement.verdict;
      ++(v == Verdict::same   ? counts.same
         : v == Verdict::fast ? counts.fast
         : v == Verdict::slow ? counts.slow
                              : counts.ambiguous);
    }
  return counts;
}

std::optional<double> SideComparison::geometric_mean(const std::string& field) const {
  double total = 0;
  int count = 0;
  for (const CaseComparison& c : cases)
    for (const FieldComparison& f : c.fields) {
      if (f.evidence.disturbed || (field.empty() ? f.sum : f.field != field)) continue;
      total += std::log(f.evidence.ratio);
      ++count;
    }
  if (count == 0) return std::nullopt;
  return std::exp(total / count);
}

std::vector<std::string> SideComparison::field_names() const {
  std::vector<std::string> names;
  for (const CaseComparison& c : cases)
    for (const FieldComparison& f : c.fields)
      if (std::find(names.begin(), names.end(), f.field) == names.end()) names.push_back(f.field);
  return names;
}

std::string comparison_table(const SideComparison& comparison, std::size_t columns) {
  Doubt doubt;
  for (const CaseComparison& c : comparison.cases)
    for (const FieldComparison& f : c.fields)
      doubt.add(f.evidence.disturbed ? others_were_running : "");
  std::string text =
      doubt.sentence() + side_text("REF", comparison.ref) + side_text("NEW", comparison.now);
  if (!comparison.ref.machine.empty() && !comparison.now.machine.empty() &&
      comparison.ref.machine != comparison.now.machine)
    text += "The machines differ: the ratios compare the machines, not changes of the program.\n";
  for (const Side* side : {&comparison.ref, &comparison.now})
    if (!side->has_run_file)
      text += fmt::format(
          "{} has no run file: without samples there is no interval and no test, so nothing can be "
          "called slower or the same.\n",
          side->path);
  const std::string confidence = fmt::format("{:.3g} % interval", 100 * (1 - alpha));
  Table table(
      {"case", "field", "REF ms", "NEW ms", "NEW/REF", confidence, "p", "n", "verdict", "why"},
      {"case", "field", "verdict", "why"});
  bool disturbed = false;
  for (const CaseComparison& c : comparison.cases)
    for (const FieldComparison& f : c.fields) {
      const auto ms = [&](double value, bool mark) {
        disturbed = disturbed || mark;
        return number(value) + (mark ? "!" : "");
      };
      std::string why = f.judgement.why;
      if (!f.ref_engine.empty() && !f.new_engine.empty() && f.ref_engine != f.new_engine) {
        why +=
            (why.empty() ? "" : "; ") + fmt::format("engine {} -> {}", f.ref_engine, f.new_engine);
      }
      table.add({c.ref.name(), f.field, ms(f.ref_ms, f.ref_disturbed),
                 ms(f.new_ms, f.new_disturbed), fmt::format("{:.3f}", f.evidence.ratio),
                 interval_text(f.evidence), p_text(f.evidence.p_adjusted), count_text(f.evidence),
                 std::string(verdict_text(f.judgement.verdict)), why});
    }
  text += "\n" + table.text(columns, 2) + "\n";
  for (const std::string& name : comparison.field_names())
    if (const auto mean = comparison.geometric_mean(name); mean && comparison.cases.size() > 1)
      text += fmt::format("geometric mean of {}: {:.3f}\n", name, *mean);
  if (const auto all = comparison.geometric_mean())
    text += fmt::format("geometric mean of NEW/REF: {:.3f}\n", *all);
  const auto list = [&](const char* label, const std::vector<std::string>& names) {
    if (names.empty()) return;
    constexpr std::size_t shown = 10;
    text += fmt::format("only in {} ({}):\n", label, names.size());
    for (std::size_t i = 0; i < std::min(shown, names.size()); ++i)
      text += "  " + printable(names[i]) + "\n";
    if (names.size() > shown)
      text += fmt::format("  and {} more (--format json lists all)\n", names.size() - shown);
  };
  list("REF", comparison.only_ref);
  list("NEW", comparison.only_new);
  if (disturbed) text += "!: other programs were running.\n";
  const Counts counts = comparison.counts();
  text += fmt::format(
      "{} SLOW, {} FAST, {} SAME, {} AMBG at a threshold of {:.3g} % (p is adjusted for all of "
      "them).\n",
      counts.slow, counts.fast, counts.same, counts.ambiguous, 100 * comparison.rules.threshold);
  return text;
}

Json comparison_json(const SideComparison& comparison) {
  Json json;
  json["type"] = "comparison";
  json["schema"] = 1;
  json["ref"] = side_json(comparison.ref);
  json["new"] = side_json(comparison.now);
  json["threshold"] = comparison.rules.threshold;
  json["alpha"] = alpha;
  const Counts counts = comparison.counts();
  json["counts"] = {{"SAME", counts.same},
                    {"FAST", counts.fast},
                    {"SLOW", counts.slow},
                    {"AMBG", counts.ambiguous}};
  Json means = Json::object();
  for (const std::string& name : comparison.field_names()) {
    const auto mean = comparison.geometric_mean(name);
    means[name] = mean ? Json(*mean) : Json(nullptr);
  }
  const auto all = comparison.geometric_mean();
  json["geometric_mean"] = all ? Json(*all) : Json(nullptr);
  json["geometric_means"] = std::move(means);
  Json cases = Json::array();
  for (const CaseComparison& c : comparison.cases) {
    Json key = Json::object();
    for (const auto& [name, value] : c.ref.key)
      key[name] = value;
    Json fields = Json::array();
    for (const FieldComparison& f : c.fields) {
      const Evidence& e = f.evidence;
      const auto optional = [](const std::optional<double>& v) {
        return v ? Json(*v) : Json(nullptr);
      };
      const auto side = [](double ms, const std::string& engine, bool disturbed, std::size_t n) {
        return Json{{"ms", ms},
                    {"n", n},
                    {"engine", engine.empty() ? Json(nullptr) : Json(engine)},
                    {"disturbed", disturbed}};
      };
      fields.push_back({{"field", f.field},
                        {"verdict", verdict_text(f.judgement.verdict)},
                        {"why", f.judgement.why.empty() ? Json(nullptr) : Json(f.judgement.why)},
                        {"ratio", e.ratio},
                        {"low", std::isfinite(e.high) ? Json(e.low) : Json(nullptr)},
                        {"high", number_or_null(e.high)},
                        {"p", optional(e.p)},
                        {"p_adjusted", optional(e.p_adjusted)},
                        {"distribution", e.p ? Json(method_text(e.method)) : Json(nullptr)},
                        {"basis", basis_text(e.basis)},
                        {"fast_ratio", optional(e.fast_ratio)},
                        {"drift", optional(e.drift)},
                        {"relative", e.relative ? Json{{"ratio", e.relative->value},
                                                       {"low", e.relative->low},
                                                       {"high", e.relative->high}}
                                                : Json(nullptr)},
                        {"p_relative", optional(e.p_relative)},
                        {"others_spread", e.others_spread},
                        {"ref", side(f.ref_ms, f.ref_engine, f.ref_disturbed, e.ref_count)},
                        {"new", side(f.new_ms, f.new_engine, f.new_disturbed, e.new_count)}});
    }
    cases.push_back({{"workload", c.ref.workload},
                     {"case", c.ref.id},
                     {"key", std::move(key)},
                     {"fields", std::move(fields)}});
  }
  json["cases"] = std::move(cases);
  json["only_ref"] = comparison.only_ref;
  json["only_new"] = comparison.only_new;
  return json;
}

int comparison_exit_code(const Counts& counts, bool strict) noexcept {
  if (counts.slow > 0) return exit_codes::slower;
  if (strict && counts.ambiguous > 0) return exit_codes::ambiguous;
  return exit_codes::ok;
}

}  // namespace switchback::bench
