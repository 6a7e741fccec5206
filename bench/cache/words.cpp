// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "autotune/operations.hpp"
#include "bench/cache/files.hpp"
#include "core/check.hpp"

namespace switchback::bench {

using nlohmann::ordered_json;

ConfigChoice default_choice(const ConfigQuery& query, const Context& context) {
  ConfigChoice choice;
  if (autotune::tunable_of(query.op).default_choice(query, context.state(), choice)) return choice;
  core::fail(Status::invalid_argument, "cache: the query of op {} is not a valid problem",
             static_cast<std::int64_t>(query.op));
}

std::string date_of(std::string_view time) {
  return std::string(time.substr(0, 10));
}

double speedup_of(const autotune::Winner& winner) {
  const double median_ms = winner.stats.median_ms;
  return median_ms > 0 && winner.default_median_ms > 0 ? winner.default_median_ms / median_ms : 0;
}

std::string speedup_text(const autotune::Winner& winner) {
  const double speedup = speedup_of(winner);
  return speedup > 0 ? fmt::format("{:.2f}x", speedup) : "-";
}

std::string text_of(const Products& products) {
  std::string text;
  for (const auto& [product, count] : products)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", product.empty() ? "?" : product,
                        products.size() > 1 ? fmt::format(" ({})", count) : "");
  return text;
}

std::string words_of(const autotune::CandidateText& candidate, std::optional<ConfigOp> op) {
  std::string text = candidate.engine;
  for (const auto& [name, value] : candidate.attributes) {
    // A problem of mode auto stores a ranking of modes: the attributes are the modes after the
    // fastest.
    if (op && autotune::tunable_of(*op).is_composed()) {
      const std::string_view mode = mode_name(static_cast<Mode>(value));
      if (mode != "unknown") {
        fmt::format_to(std::back_inserter(text), ", then {}", mode);
        continue;
      }
    }
    if (value != 0) fmt::format_to(std::back_inserter(text), " {}={}", name, value);
  }
  return text;
}

autotune::CandidateText default_of(const ConfigQuery& query, const Context& context) {
  return autotune::to_text(query.op, default_choice(query, context));
}

ordered_json to_json(const autotune::CandidateText& candidate) {
  ordered_json json;
  json["engine"] = candidate.engine;
  ordered_json& attributes = json["attributes"] = ordered_json::object();
  for (const auto& [name, value] : candidate.attributes)
    attributes[name] = value;
  if (!candidate.algo_hex.empty()) json["algo_hex"] = candidate.algo_hex;
  return json;
}

ordered_json to_json(const autotune::Environment& env) {
  return {{"kernels", env.kernels},   {"cublaslt", env.cublaslt}, {"onednn", env.onednn},
          {"openblas", env.openblas}, {"driver", env.driver},     {"product", env.product},
          {"tool", env.tool}};
}

ordered_json to_json(const CacheLine& line) {
  ordered_json json;
  if (line.entry.winner) {
    const autotune::Winner& w = *line.entry.winner;
    json["candidate"] = to_json(w.candidate);
    json["stats"] = {{"n", w.stats.count},       {"min_ms", w.stats.min_ms},
                     {"p20_ms", w.stats.p20_ms}, {"median_ms", w.stats.median_ms},
                     {"p80_ms", w.stats.p80_ms}, {"mad_ms", w.stats.mad_ms},
                     {"max_ms", w.stats.max_ms}};
    if (speedup_of(w) > 0) {
      json["default_median_ms"] = w.default_median_ms;
      json["speedup"] = speedup_of(w);
    }
    json["effort"] = autotune::effort_name(w.effort);
    json["discarded_rounds"] = w.discarded_rounds;
    json["disturbed_rounds"] = w.disturbed_rounds;
    json["in_doubt"] = autotune::in_doubt(w);
    json["time"] = w.time;
  }
  json["wrong"] = ordered_json::array();
  for (const autotune::Validated& validated : line.entry.validated)
    if (!validated.is_right())
      json["wrong"].push_back({{"candidate", to_json(validated.candidate)},
                               {"why", validated.why},
                               {"time", validated.time}});
  json["env"] = to_json(line.entry.env);
  json["file"] = line.file.string();
  json["line"] = line.number;
  return json;
}

ordered_json to_json(const autotune::Warning& warning, std::string_view type) {
  return {{"type", type},
          {"file", warning.file.string()},
          {"line", warning.line},
          {"why", warning.what}};
}

void print_json(const ordered_json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace switchback::bench
