// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/entry.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/check.hpp"
#include "measure/disturbance.hpp"

namespace switchback::autotune {

namespace {

// JSON whose members keep their order, because the order of attributes is part of a candidate.
using Json = nlohmann::ordered_json;
using core::require;

constexpr std::array<std::string_view, 4> effort_names = {"cut", "quick", "normal", "thorough"};
constexpr std::string_view line_start = "{\"key\":{";
constexpr std::size_t before_key = line_start.size() - 1;
// An entry has five levels of nesting. Deeper text is rejected before it reaches recursive code.
constexpr int max_depth = 32;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The end of the JSON object at the start of a text, and the number of its levels of nesting.
struct Extent {
  /// The position after the closing brace; npos if that brace is missing.
  std::size_t end = std::string_view::npos;
  int depth = 0;
};

Extent extent_of_object(std::string_view text) noexcept {
  Extent extent;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i)
          if (text[i] == '\\') ++i;
        break;
      case '{':
      case '[':
        extent.depth = std::max(extent.depth, ++depth);
        break;
      case '}':
      case ']':
        if (--depth == 0) {
          extent.end = i + 1;
          return extent;
        }
        break;
      default:
        break;
    }
  }
  return extent;
}

double finite(const char* name, double value) {
  require(std::isfinite(value), "entry: {} = {}; a time must be finite", name, value);
  return value;
}

Json json_of(const CandidateText& candidate) {
  Json attributes = Json::object();
  for (const auto& [name, value] : candidate.attributes) {
    require(!attributes.contains(name),
            "entry: attribute '{}' is given twice; each may be given only once", name);
    attributes[name] = value;
  }
  Json json = {{"engine", candidate.engine}, {"attributes", std::move(attributes)}};
  if (!candidate.algo_hex.empty()) json["algo_hex"] = candidate.algo_hex;
  return json;
}

Json json_of(const Environment& env) {
  return {{"kernels", env.kernels},   {"cublaslt", env.cublaslt}, {"onednn", env.onednn},
          {"openblas", env.openblas}, {"driver", env.driver},     {"product", env.product},
          {"tool", env.tool}};
}

Json json_of(const Winner& winner) {
  const measure::Stats& stats = winner.stats;
  return {{"candidate", json_of(winner.candidate)},
          {"stats",
           {{"n", stats.count},
            {"min_ms", finite("min_ms", stats.min_ms)},
            {"p20_ms", finite("p20_ms", stats.p20_ms)},
            {"median_ms", finite("median_ms", stats.median_ms)},
            {"p80_ms", finite("p80_ms", stats.p80_ms)},
            {"mad_ms", finite("mad_ms", stats.mad_ms)},
            {"max_ms", finite("max_ms", stats.max_ms)}}},
          {"default_median_ms", finite("default_median_ms", winner.default_median_ms)},
          {"effort", effort_name(winner.effort)},
          {"discarded_rounds", winner.discarded_rounds},
          {"disturbed_rounds", winner.disturbed_rounds},
          {"timed_rounds", winner.timed_rounds},
          {"time", winner.time}};
}

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  require(found != object.end(), "field '{}' is missing", name);
  return *found;
}

const Json& object_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_object(), "field '{}' is not an object", name);
  return value;
}

std::string text_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_string(), "field '{}' is not a string", name);
  return value.get<std::string>();
}

std::string text_or_empty(const Json& object, const char* name) {
  return object.contains(name) ? text_field(object, name) : std::string();
}

std::int64_t integer(const Json& value, const std::string& name) {
  constexpr auto high = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  require(value.is_number_integer() &&
              (!value.is_number_unsigned() || value.get<std::uint64_t>() <= high),
          "field '{}' is not a 64-bit integer", name);
  return value.get<std::int64_t>();
}

std::int64_t integer_field(const Json& object, const char* name) {
  return integer(field(object, name), name);
}

double number_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_number(), "field '{}' is not a number", name);
  return value.get<double>();
}

Environment read_environment(const Json& object) {
  return {text_field(object, "kernels"),   text_or_empty(object, "cublaslt"),
          text_or_empty(object, "onednn"), text_or_empty(object, "openblas"),
          text_or_empty(object, "driver"), text_or_empty(object, "product"),
          text_or_empty(object, "tool")};
}

CandidateText read_candidate(const Json& object) {
  const Json& value = object_field(object, "candidate");
  CandidateText candidate;
  candidate.engine = text_field(value, "engine");
  for (const auto& [name, attribute] : object_field(value, "attributes").items())
    candidate.attributes.emplace_back(name, integer(attribute, name));
  candidate.algo_hex = text_or_empty(value, "algo_hex");
  return candidate;
}

Winner read_winner(const Json& object) {
  Winner winner;
  winner.candidate = read_candidate(object);
  const Json& stats = object_field(object, "stats");
  winner.stats.count = integer_field(stats, "n");
  winner.stats.min_ms = number_field(stats, "min_ms");
  winner.stats.p20_ms = number_field(stats, "p20_ms");
  winner.stats.median_ms = number_field(stats, "median_ms");
  winner.stats.p80_ms = number_field(stats, "p80_ms");
  winner.stats.mad_ms = number_field(stats, "mad_ms");
  winner.stats.max_ms = number_field(stats, "max_ms");
  winner.default_median_ms = number_field(object, "default_median_ms");
  const std::string effort = text_field(object, "effort");
  const auto found = std::find(effort_names.begin(), effort_names.end(), effort);
  require(found != effort_names.end(), "effort '{}' is not one of {}", effort,
          fmt::join(effort_names, ", "));
  winner.effort = static_cast<Effort>(found - effort_names.begin());
  winner.discarded_rounds = integer_field(object, "discarded_rounds");
  winner.disturbed_rounds = integer_field(object, "disturbed_rounds");
  winner.timed_rounds = integer_field(object, "timed_rounds");
  winner.time = text_field(object, "time");
  return winner;
}

Entry read_entry(const Json& object) {
  Entry entry;
  entry.key.json = nlohmann::json(object_field(object, "key")).dump();
  entry.env = read_environment(object_field(object, "env"));
  if (object.contains("winner")) entry.winner = read_winner(object_field(object, "winner"));
  if (!object.contains("proven")) return entry;
  const Json& validated = field(object, "proven");
  require(validated.is_array(), "field 'proven' is not a list");
  for (const Json& one : validated)
    entry.validated.push_back(
        {read_candidate(one), text_or_empty(one, "why"), text_field(one, "time")});
  return entry;
}

bool found_wrong_since(const Winner& winner, const Validated& validated) {
  return !validated.is_right() && validated.candidate == winner.candidate &&
         !is_later(winner.time, validated.time);
}

}  // namespace

std::string describe(const CandidateText& candidate) {
  std::string text = candidate.engine;
  for (const auto& [name, value] : candidate.attributes)
    fmt::format_to(std::back_inserter(text), " {}={}", name, value);
  return text;
}

bool same_hard(const Environment& a, const Environment& b) noexcept {
  return a.kernels == b.kernels && a.cublaslt == b.cublaslt && a.onednn == b.onednn &&
         a.openblas == b.openblas;
}

std::string_view effort_name(Effort effort) noexcept {
  const auto index = static_cast<std::size_t>(effort);
  return index < effort_names.size() ? effort_names[index] : "unknown";
}

bool in_doubt(const Winner& winner) noexcept {
  return measure::Disturbance{.rounds = winner.timed_rounds,
                              .discarded = winner.discarded_rounds,
                              .disturbed = winner.disturbed_rounds}
      .in_doubt();
}

bool is_later(std::string_view a, std::string_view b) {
  constexpr std::time_t day_s = 24 * 60 * 60;
  const std::string latest =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr) + day_s));
  const bool a_is_wrong = a > latest;
  const bool b_is_wrong = b > latest;
  return a_is_wrong != b_is_wrong ? b_is_wrong : a > b;
}

bool better_winner(const Winner& a, const Winner& b) {
  if (in_doubt(a) != in_doubt(b)) return in_doubt(b);
  if (a.effort != b.effort) return a.effort > b.effort;
  if (a.time != b.time) return is_later(a.time, b.time);
  return text_of(json_of(a)) < text_of(json_of(b));
}

void merge_into(Entry& entry, const Entry& other) {
  for (const Validated& one : other.validated) {
    const auto known =
        std::find_if(entry.validated.begin(), entry.validated.end(),
                     [&](const Validated& old) { return old.candidate == one.candidate; });
    if (known == entry.validated.end())
      entry.validated.push_back(one);
    else if (known->time != one.time ? is_later(one.time, known->time) : one.why > known->why)
      *known = one;
  }
  const auto holds = [&](const std::optional<Winner>& winner) {
    return winner &&
           std::none_of(entry.validated.begin(), entry.validated.end(),
                        [&](const Validated& one) { return found_wrong_since(*winner, one); });
  };
  if (!holds(entry.winner)) entry.winner.reset();
  if (holds(other.winner) && (!entry.winner || better_winner(*other.winner, *entry.winner)))
    entry.winner = other.winner;
}

bool failed_since(const Entry& entry, std::span<const Entry> entries, std::string* why) {
  for (const Entry& other : entries) {
    if (!same_hard(other.env, entry.env)) continue;
    for (const Validated& validated : other.validated)
      if (found_wrong_since(*entry.winner, validated)) {
        if (why != nullptr) *why = validated.why;
        return true;
      }
  }
  return false;
}

const Entry* best_of(std::span<const Entry> entries,
                     const std::function<bool(const Entry&)>& usable) {
  const Entry* best = nullptr;
  for (const Entry& entry : entries)
    if (entry.winner && !failed_since(entry, entries) && usable(entry) &&
        (best == nullptr || better_winner(*entry.winner, *best->winner)))
      best = &entry;
  return best;
}

std::string to_line(const Entry& entry) {
  const std::string& key = entry.key.json;
  const bool one_line = std::none_of(key.begin(), key.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (!key.starts_with('{') || !key.ends_with('}') || !one_line || !Json::accept(key))
    core::fail(Status::invalid_argument, "entry: key = {}; it must be a JSON object on one line",
               text_of(Json(key)));
  Json rest = {{"v", schema_version}, {"env", json_of(entry.env)}};
  if (entry.winner) rest["winner"] = json_of(*entry.winner);
  for (const Validated& validated : entry.validated) {
    Json& json = rest["proven"].emplace_back();
    json = {{"candidate", json_of(validated.candidate)}, {"time", validated.time}};
    if (!validated.is_right()) json["why"] = validated.why;
  }
  return "{\"key\":" + key + ',' + text_of(rest).substr(1);
}

std::optional<Entry> from_line(std::string_view line, std::string& why, bool* newer) {
  if (newer != nullptr) *newer = false;
  const std::size_t first = line.find_first_not_of(" \t");
  const bool is_object = first != std::string_view::npos && line[first] == '{' &&
                         extent_of_object(line.substr(first)).depth <= max_depth;
  const Json object = is_object ? Json::parse(line, nullptr, false) : Json();
  if (!object.is_object()) {
    why = "it is not a valid JSON object";
    return std::nullopt;
  }
  try {
    const std::int64_t version = integer_field(object, "v");
    if (newer != nullptr) *newer = version > schema_version;
    require(version == schema_version, "schema version {}; this library reads version {}", version,
            schema_version);
    return read_entry(object);
  } catch (const Error& error) {
    why = error.what();
    return std::nullopt;
  }
}

std::string_view key_text(std::string_view line) noexcept {
  if (!line.starts_with(line_start)) return {};
  line.remove_prefix(before_key);
  const std::size_t end = extent_of_object(line).end;
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end);
}

}  // namespace switchback::autotune
