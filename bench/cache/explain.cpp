// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/session.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "core/context_state.hpp"
#include "core/rows_bucket.hpp"

namespace switchback::bench {

using autotune::Entry;
using autotune::Winner;
using nlohmann::ordered_json;

namespace {

// A cache entry that a look-up of a problem considers, and what happens to its winner.
struct Considered {
  const CacheLine* line = nullptr;
  TuneOrigin origin = TuneOrigin::exact;
  std::string of;  ///< the entry's problem, if it is only similar to the problem looked up
  std::vector<autotune::Verdict> verdicts;
  bool usable = false;
  std::string outcome;  ///< what became of the entry: "wins: …" or "refused: …"

  [[nodiscard]] const Winner& winner() const { return *line->entry.winner; }
};

struct Explanation {
  std::vector<Considered> considered;
  bool looked_up = false;  ///< whether programs look up this problem with this device and CPU
  TuneOrigin origin = TuneOrigin::fallback;
  autotune::CandidateText candidate;  ///< the configuration that runs
  std::string runs;                   ///< the configuration that runs, as text for users
  const CacheLine* from = nullptr;
  std::string why;  ///< why this configuration runs
};

class Explainer {
 public:
  Explainer(const CacheView& view, const std::vector<KeyGroup>& groups)
      : view_(view), groups_(groups) {}

  // Explains which configuration runs for a problem. The key may also be one that this Context
  // (device, threads, instruction set) never looks up.
  [[nodiscard]] Explanation explain(const KeyGroup& group) const {
    Explanation result;
    const std::string foreign = view_.foreign(group);
    consider(result, group.cache, TuneOrigin::exact, group, foreign, "");
    result.looked_up = foreign.empty();
    if (!result.looked_up) {
      consider(result, group.system_list, TuneOrigin::system_list, group, foreign, "");
      result.why = foreign;
      return result;
    }
    if (view_.tuner().options.near_shapes) consider_near(result, group);
    consider(result, group.system_list, TuneOrigin::system_list, group, foreign, "");
    decide(result, group.parts->query);
    return result;
  }

 private:
  void consider_near(Explanation& result, const KeyGroup& group) const {
    const TunerState& tuner = view_.tuner();
    const auto family = [&](const autotune::KeyParts& parts) {
      return autotune::family_of(parts.query, parts.machine, parts.policy);
    };
    const autotune::Family own = family(*group.parts);
    std::vector<std::pair<double, const KeyGroup*>> near;
    for (const KeyGroup& other : groups_) {
      if (!other.parts || other.cache.empty() || other.key == group.key ||
          other.parts->machine != tuner.machine || other.parts->policy != tuner.policy)
        continue;
      const autotune::Family its = family(*other.parts);
      if (its.key == own.key && core::rows_bucket(its.m) == core::rows_bucket(own.m))
        near.emplace_back(
            std::abs(std::log(static_cast<double>(its.m) / static_cast<double>(own.m))), &other);
    }
    // A look-up considers only the nearest shape, so the shapes are sorted by their distance.
    std::stable_sort(near.begin(), near.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [distance, other] : near)
      consider(result, other->cache, TuneOrigin::near_shape, group, "", describe(*other));
  }

  // Adds the cache entries of one source (cache, near shape or system list) in that source's order.
  void consider(Explanation& result, const std::vector<const CacheLine*>& lines, TuneOrigin origin,
                const KeyGroup& group, const std::string& foreign, const std::string& of) const {
    std::vector<Entry> entries;
    for (const CacheLine* line : lines)
      entries.push_back(line->entry);
    for (const CacheLine* line : lines) {
      Considered one{line, origin, of, {}, false, {}};
      if (!line->entry.winner)
        one.outcome = "it has no winner";
      else if (!foreign.empty())
        one.outcome = "refused: " + foreign;
      else
        judge(one, *group.parts, entries);
      result.considered.push_back(std::move(one));
    }
  }

  void judge(Considered& one, const autotune::KeyParts& parts,
             const std::vector<Entry>& entries) const {
    std::optional<ConfigChoice> choice;
    one.verdicts = view_.tuner().judge(one.line->entry, parts.query, view_.context.state(), choice);
    std::string why;
    if (!choice)
      one.outcome =
          fmt::format("refused: {}: {}", one.verdicts.back().validator, one.verdicts.back().why);
    else if (autotune::failed_since(one.line->entry, entries, &why))
      one.outcome = "refused: it failed later: " + why;
    else
      one.usable = true;
  }

  // Asks the tuner for the configuration of a problem. Then finds which of the usable entries it
  // chose, and why.
  void decide(Explanation& result, const ConfigQuery& query) const {
    const autotune::Answer answer = view_.tuner().look_up(query, view_.context.state());
    result.origin = answer.origin;
    if (answer.origin == TuneOrigin::fallback) {
      take_default(result, query, answer.refused);
      return;
    }
    result.candidate = autotune::to_text(query.op, answer.choice);
    result.runs = words_of(result.candidate, query.op);
    const Considered* winner = nullptr;
    const Considered* second = nullptr;
    for (const Considered& entry : result.considered)
      if (entry.usable && entry.origin == answer.origin && gives(entry, query, answer.choice) &&
          (winner == nullptr ||
           (entry.of == winner->of && autotune::better_winner(entry.winner(), winner->winner()))))
        winner = &entry;
    if (winner == nullptr) return;
    for (const Considered& entry : result.considered)
      if (&entry != winner && entry.usable && entry.origin == answer.origin &&
          entry.of == winner->of &&
          (second == nullptr || autotune::better_winner(entry.winner(), second->winner())))
        second = &entry;
    result.from = winner->line;
    result.why = second == nullptr ? "the only entry from there that is valid here"
                                   : reason(winner->winner(), second->winner());
    for (Considered& entry : result.considered) {
      if (!entry.usable) continue;
      if (&entry == winner)
        entry.outcome = "wins: " + result.why;
      else if (entry.origin == winner->origin && entry.of == winner->of)
        entry.outcome = "valid; loses: " + reason(winner->winner(), entry.winner());
      else if (entry.origin == winner->origin)
        entry.outcome = "valid; loses: another entry has a nearer number of rows";
      else
        entry.outcome =
            fmt::format("valid; loses: the {} takes precedence", tune_origin_name(winner->origin));
    }
  }

  static bool gives(const Considered& entry, const ConfigQuery& query, const ConfigChoice& choice) {
    std::string why;
    return autotune::to_choice(query.op, entry.winner().candidate, why) == choice;
  }

  static std::string reason(const Winner& winner, const Winner& loser) {
    if (winner.effort != loser.effort)
      return fmt::format("effort {} takes precedence over {}", autotune::effort_name(winner.effort),
                         autotune::effort_name(loser.effort));
    if (winner.time != loser.time && loser.time > winner.time)
      return fmt::format(
          "equal effort; {} takes precedence over {}, which is more than a day in the future",
          winner.time, loser.time);
    if (winner.time != loser.time)
      return fmt::format("equal effort; the later one takes precedence, {} over {}", winner.time,
                         loser.time);
    return "equal effort and time; the smaller text takes precedence";
  }

  void take_default(Explanation& result, const ConfigQuery& query, bool refused) const {
    result.candidate = default_of(query, view_.context);
    result.runs = words_of(result.candidate, query.op);
    result.why = refused                     ? "no entry is valid here"
                 : result.considered.empty() ? "there is no entry for it"
                                             : "there is no winner for it";
  }

  const CacheView& view_;
  const std::vector<KeyGroup>& groups_;
};

std::string origin_text(const Considered& entry) {
  std::string text(tune_origin_name(entry.origin));
  return entry.of.empty() ? text : fmt::format("{} ({})", text, entry.of);
}

std::string checks_text(const Considered& entry) {
  std::string text;
  for (const autotune::Verdict& verdict : entry.verdicts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", verdict.validator,
                        verdict.why.empty() ? "ok" : "no");
  return text.empty() ? "-" : text;
}

void explain_json(const KeyGroup& group, const Explanation& e) {
  ordered_json json;
  json["type"] = "explain";
  json["key"] = name_of(group.key);
  if (group.parts) {
    json["problem"] = describe(group);
    json["machine"] = autotune::describe(group.parts->machine);
  } else {
    json["unreadable"] = group.why;
  }
  json["entries"] = ordered_json::array();
  for (const Considered& one : e.considered) {
    ordered_json entry = to_json(*one.line);
    entry["origin"] = tune_origin_name(one.origin);
    if (!one.of.empty()) entry["of"] = one.of;
    entry["verdicts"] = ordered_json::array();
    for (const autotune::Verdict& verdict : one.verdicts)
      entry["verdicts"].push_back({{"validator", verdict.validator},
                                   {"passed", verdict.why.empty()},
                                   {"why", verdict.why}});
    entry["outcome"] = one.outcome;
    json["entries"].push_back(std::move(entry));
  }
  if (e.looked_up) {
    json["runs"] = {{"origin", tune_origin_name(e.origin)}, {"candidate", to_json(e.candidate)}};
    if (e.from != nullptr) json["runs"]["file"] = e.from->file.string();
    if (e.from != nullptr) json["runs"]["line"] = e.from->number;
  } else {
    json["runs"] = nullptr;
  }
  json["why"] = e.why;
  print_json(json);
}

void explain_text(const KeyGroup& group, const Explanation& e) {
  fmt::print("{} (key {})\n", printable(describe(group)), name_of(group.key));
  const std::optional<ConfigOp> op =
      group.parts ? std::optional(group.parts->query.op) : std::nullopt;
  Table table({"winner", "ms", "speed-up", "origin", "effort", "date", "measured on", "from",
               "checks", "outcome"},
              {"winner", "origin", "effort", "date", "measured on", "from", "checks", "outcome"});
  Table wrong({"wrong, or could not run", "why", "date", "from"}, {"why", "date", "from"});
  for (const Considered& one : e.considered) {
    const Entry& entry = one.line->entry;
    for (const autotune::Validated& validated : entry.validated)
      if (!validated.is_right())
        wrong.add({words_of(validated.candidate, op), validated.why, date_of(validated.time),
                   place_of(*one.line)});
    if (!entry.winner) continue;
    const Winner& winner = *entry.winner;
    table.add({words_of(winner.candidate, op), number(winner.stats.median_ms), speedup_text(winner),
               origin_text(one), std::string(autotune::effort_name(winner.effort)),
               date_of(winner.time), entry.env.product, place_of(*one.line), checks_text(one),
               one.outcome});
  }
  if (!table.empty()) fmt::print("{}", table.text_for(stdout));
  if (!wrong.empty()) fmt::print("{}", wrong.text_for(stdout));
  if (!e.looked_up)
    fmt::print(
        "runs: nothing. Programs on this machine with these options do not look the key up: it is "
        "{}\n\n",
        printable(e.why));
  else if (e.from != nullptr)
    fmt::print("runs: {}, from the {} ({}): {}\n\n", printable(e.runs), tune_origin_name(e.origin),
               printable(place_of(*e.from)), printable(e.why));
  else
    fmt::print("runs: {}, the default: {}\n\n", printable(e.runs), printable(e.why));
}

// Adds one problem, with the configuration that it runs, as a row of one of the three tables.
void add_line(const KeyGroup& group, const Explanation& e, Table& found, Table& refusals,
              Table& unknown) {
  const std::string key = name_of(group.key);
  const std::string problem = fmt::format("{}: {}", describe(group), e.runs);
  if (e.from != nullptr) {
    found.add({key, std::string(tune_origin_name(e.origin)), speedup_text(*e.from->entry.winner),
               problem});
    return;
  }
  if (e.considered.empty()) {
    unknown.add({key, problem});
    return;
  }
  refusals.add({key, std::to_string(e.considered.size()),
                fmt::format("{}; {}", problem, e.considered.back().outcome)});
}

void warn_of_mode(StatusLine& out) {
  const char* mode = std::getenv("SWITCHBACK_TUNE");
  if (mode != nullptr && std::string_view(mode) == "off")
    out.warning(
        "SWITCHBACK_TUNE is off: programs look nothing up and run the defaults; this shows what "
        "they would find otherwise");
  if (const std::string why = wrong_mode(); !why.empty()) out.warning(why);
}

}  // namespace

int cache_explain(const CacheOptions& options, const CacheExplainOptions& what) {
  CacheView view(options, what.near_shapes, what.strict);
  StatusLine out(false);
  warn_of_mode(out);
  // A key that the user gives may belong to any machine, so the files of all machines are read.
  // Look-ups read only the file of this machine.
  const bool by_key = !what.key.empty();
  const std::vector<CacheFile> files = view.read(by_key);
  for (const CacheFile& file : files)
    warn_of_skipped(file, out);
  const std::vector<KeyGroup> groups = group_keys(files);
  const Explainer explainer(view, groups);
  if (by_key) {
    const KeyGroup& group = find_key(groups, what.key);
    const Explanation explanation = explainer.explain(group);
    options.json ? explain_json(group, explanation) : explain_text(group, explanation);
    return exit_codes::ok;
  }

  // Each problem is one line of a table. Long texts are in the last column, where a terminal has
  // room.
  Table found({"key", "from", "speed-up", "problem: what runs"}, {"from", "problem: what runs"});
  Table refusals({"key", "entries", "problem: what runs, and why"},
                 {"problem: what runs, and why"});
  Table unknown({"key", "problem: what runs"}, {"problem: what runs"});
  std::int64_t problems = 0;
  std::int64_t tuned = 0;
  std::int64_t refused = 0;
  for (const ConfigQuery& query : autotune::queries_of(view.context, what.shapes)) {
    KeyGroup group;
    group.key = autotune::key_of(query, view.tuner().machine, view.tuner().policy);
    group.parts = {query, view.tuner().machine, view.tuner().policy};
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const KeyGroup& other) { return other.key == group.key; });
    if (known != groups.end()) group = *known;
    const Explanation explanation = explainer.explain(group);
    ++problems;
    const bool is_default = explanation.origin == TuneOrigin::fallback;
    tuned += is_default ? 0 : 1;
    refused += is_default && !explanation.considered.empty() ? 1 : 0;
    if (options.json)
      explain_json(group, explanation);
    else
      add_line(group, explanation, found, refusals, unknown);
  }
  if (options.json) return exit_codes::ok;
  if (!found.empty())
    fmt::print("These problems run a configuration that was found:\n{}\n", found.text_for(stdout));
  if (!refusals.empty())
    fmt::print("These problems have entries, but run the default:\n{}\n",
               refusals.text_for(stdout));
  if (!unknown.empty())
    fmt::print("These problems have no entries and run the default:\n{}\n",
               unknown.text_for(stdout));
  if (!found.empty() || !refusals.empty())
    fmt::print(
        "'switchback-bench cache explain KEY' shows every entry of a key and the result of each "
        "check.\n");
  fmt::print("{} problems: {} run a configuration that was found, {} the default", problems, tuned,
             problems - tuned);
  fmt::print("{}\n",
             refused > 0 ? fmt::format(", {} of those although they have entries", refused) : "");
  if (tuned < problems)
    fmt::print("'switchback-bench tune' with the same shape measures what is missing.\n");
  return exit_codes::ok;
}

}  // namespace switchback::bench
