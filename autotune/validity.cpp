// SPDX-License-Identifier: Apache-2.0
#include "autotune/validity.hpp"

#include <fmt/format.h>

#include "autotune/problem.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/candidates.hpp"
#include "linear/mode.hpp"
#include "quant/config.hpp"

namespace switchback::autotune {

namespace {
constexpr const char* no_configuration = "its numbers are no configuration of this version";
}

std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state) {
  switch (query.op) {
    case ConfigOp::quantize: {
      quant::Problem problem;
      quant::Config config;
      if (!quant::from_query(query, problem) || !quant::from_choice(choice, config))
        return no_configuration;
      return quant::accepts(config, problem) ? "" : "its engine does not run here";
    }
    case ConfigOp::gemm_int8: {
      gemm_int8::GemmProblem problem;
      if (!gemm_int8::from_query(query, problem)) return no_configuration;
      return gemm_int8::check_config(problem, gemm_int8::from_choice(choice), state);
    }
    case ConfigOp::gemm_floating: {
      floating::Problem problem;
      floating::Config config;
      if (!floating::from_query(query, problem) || !floating::from_choice(choice, config))
        return no_configuration;
      return floating::check_config(problem, config, state);
    }
    case ConfigOp::layer_mode: {
      linear::ModeRanking ranking;
      return linear::from_choice(choice, ranking) ? "" : no_configuration;
    }
  }
  return no_configuration;
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
  choice = known;
  return verdicts;
}

}  // namespace switchback::autotune
