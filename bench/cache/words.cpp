// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "autotune/operations.hpp"
#include "bench/cache/files.hpp"
#include "core/check.hpp"

namespace switchback::bench {

using autotune::Record;
using autotune::RecordType;
using nlohmann::ordered_json;

ConfigChoice default_choice(const ConfigQuery& query, const Context& context) {
  ConfigChoice choice;
  if (autotune::tunable_of(query.op).default_choice(query, context.state(), choice)) return choice;
  core::fail(Status::invalid_argument, "cache: the query of op {} is no problem",
             static_cast<std::int64_t>(query.op));
}

std::string short_hash(const autotune::Key& key) {
  return key.sha.substr(0, 12);
}

std::string date_of(const Record& record) {
  return record.time.substr(0, 10);
}

double speedup_of(const Record& record) {
  const double median_ms = record.stats.median_ms;
  return median_ms > 0 && record.default_median_ms > 0 ? record.default_median_ms / median_ms : 0;
}

std::string speedup_text(const Record& record) {
  const double speedup = speedup_of(record);
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
    // A ranking: the attributes are the candidates behind the fastest.
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
  const Record& r = line.record;
  ordered_json json;
  json["record"] = autotune::record_type_name(r.type);
  if (r.type != RecordType::tombstone) json["candidate"] = to_json(r.candidate);
  if (r.type == RecordType::fail) json["why"] = r.why;
  if (r.stats.count > 0)
    json["stats"] = {{"n", r.stats.count},       {"min_ms", r.stats.min_ms},
                     {"p20_ms", r.stats.p20_ms}, {"median_ms", r.stats.median_ms},
                     {"p80_ms", r.stats.p80_ms}, {"mad_ms", r.stats.mad_ms},
                     {"max_ms", r.stats.max_ms}};
  if (speedup_of(r) > 0) {
    json["default_median_ms"] = r.default_median_ms;
    json["speedup"] = speedup_of(r);
  }
  json["effort"] = autotune::effort_name(r.effort);
  json["budget_hit"] = r.budget_hit;
  json["discarded_rounds"] = r.discarded_rounds;
  json["disturbed_rounds"] = r.disturbed_rounds;
  json["in_doubt"] = autotune::in_doubt(r);
  json["time"] = r.time;
  json["env"] = to_json(r.env);
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
