// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/validity.hpp"

#include <fmt/format.h>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/environment.hpp"
#include "autotune/operations.hpp"

namespace switchback::autotune {

std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state) {
  return tunable_of(query.op).refusal(query, choice, state);
}

std::vector<Verdict> judge(const Record& record, const ConfigQuery& query,
                           const ContextState& state, const Environment& now, bool strict,
                           std::optional<ConfigChoice>& choice) {
  std::vector<Verdict> verdicts;
  // Adds a verdict; true if it is a refusal.
  const auto refused = [&](std::string validator, std::string why) {
    verdicts.push_back({std::move(validator), std::move(why)});
    return !verdicts.back().why.empty();
  };
  choice.reset();
  if (refused("libraries and kernels",
              mismatch(query.op, record.candidate.engine, record.env, now)))
    return verdicts;
  if (strict) {
    const auto same = [](std::string_view then, std::string_view here) {
      return then == here ? std::string()
                          : fmt::format("measured with '{}', this is '{}'", then, here);
    };
    if (refused("driver", same(record.env.driver, now.driver)) ||
        refused("product", same(record.env.product, now.product)) ||
        refused("version", same(record.env.tool, now.tool)))
      return verdicts;
  }
  std::string why;
  const std::optional<ConfigChoice> known = to_choice(query.op, record.candidate, why);
  if (refused("words", known ? std::string() : why)) return verdicts;
  if (refused("engine", refusal(query, *known, state))) return verdicts;
  if (refused("measurement", in_doubt(record) ? std::string(doubt_text) : std::string()))
    return verdicts;
  choice = known;
  return verdicts;
}

}  // namespace switchback::autotune
