// SPDX-License-Identifier: Apache-2.0
// Bench: the floating point product that the int8 path is compared with. It uses the fastest
// engine.
#include <algorithm>

#include "bench/run/case_setting.hpp"
#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/floating/engine.hpp"
#include "measure/rounds.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

std::function<void()> floating_call(CaseSetting& setting, const FloatingProduct& product,
                                    const std::string& engine) {
  // The lambda has its own copy of `engine`, because the arguments only refer to the name.
  return [&setting, product, engine] {
    StandardGemmArgs args;
    args.a = setting.take(product.a).any();
    args.b = setting.take(product.b).any();
    args.d = setting.take(product.d).any();
    args.transpose_a = product.transpose_a;
    args.transpose_b = product.transpose_b;
    args.engine = engine;
    gemm_standard(setting.context, args);
  };
}

std::string fastest_floating_engine(CaseSetting& setting, const FloatingProduct& product) {
  struct Candidate {
    std::string name;
    std::function<void()> call;
    double best_s;
  };
  const auto watch = measure::make_stopwatch(setting.context);
  std::vector<Candidate> candidates;
  std::string refusals;
  std::vector<EngineInfo> engines = gemm_standard_engines(setting.context);
  // The reference engine is meant for tests, so it takes part only if no other engine runs.
  std::stable_partition(engines.begin(), engines.end(),
                        [](const EngineInfo& e) { return e.name != core::oracle_name; });
  for (const EngineInfo& engine : engines) {
    if (!engine.available || (engine.name == core::oracle_name && !candidates.empty())) continue;
    // An engine that rounds the operands first computes another product, so it runs only if
    // --engine names it.
    if (floating::factor_error(setting.context.state().device.kind, engine.name) > 0) continue;
    setting.stop_if_interrupted();
    const std::function<void()> call = floating_call(setting, product, engine.name);
    try {
      call();  // the first call allocates memory and lets a library build its kernel
      candidates.push_back({engine.name, call, measure::seconds_of(*watch, call)});
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      refusals += (refusals.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (candidates.empty()) throw Error(Status::unsupported, refusals);
  const auto by_time = [](const Candidate& a, const Candidate& b) { return a.best_s < b.best_s; };
  const double best_s = std::min_element(candidates.begin(), candidates.end(), by_time)->best_s;
  std::erase_if(candidates, [&](const Candidate& c) { return c.best_s > 2 * best_s; });

  const int wanted = candidates.size() < 2 ? 0 : best_s > 0.5 ? 1 : best_s > 0.01 ? 3 : 7;
  std::vector<std::function<void()>> calls;
  for (const Candidate& candidate : candidates)
    calls.push_back(candidate.call);
  measure::RoundRules rules;
  rules.interrupted = setting.options.interrupted;
  rules.another = [&](const measure::RoundsSoFar& so_far) { return so_far.rounds < wanted; };
  const measure::Times times_ms = measure::run_rounds(rules, calls, *watch);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    for (const double ms : times_ms[i])
      candidates[i].best_s = std::min(candidates[i].best_s, ms / 1e3);
  return std::min_element(candidates.begin(), candidates.end(), by_time)->name;
}

}  // namespace switchback::bench
