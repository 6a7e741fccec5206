// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "autotune/store/crc32.hpp"
#include "core/check.hpp"

namespace switchback::autotune {

namespace {

// The order of attributes is part of a candidate.
using Json = nlohmann::ordered_json;
using core::require;

// A record has three levels. Deeper text is rejected before it reaches code that recurses.
constexpr int max_depth = 32;

bool is_space(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The CRC at the end of a line, and the number of bytes before it that it covers.
struct Tail {
  std::uint32_t crc = 0;
  std::size_t covered = 0;
};

// Searches backwards from the end, because only there it is surely the line's own field and not
// text inside another one. Spaces are accepted, because some tools write them. Capital letters are
// not: otherwise a line with one flipped bit in a digit would pass.
std::optional<Tail> find_tail(std::string_view line) noexcept {
  const auto skip_space = [&line] {
    while (!line.empty() && is_space(line.back()))
      line.remove_suffix(1);
  };
  const auto take = [&line](std::string_view what) {
    if (!line.ends_with(what)) return false;
    line.remove_suffix(what.size());
    return true;
  };
  Tail tail;
  skip_space();
  if (!take("}")) return std::nullopt;
  skip_space();
  if (!take("\"") || line.size() < 8) return std::nullopt;
  for (const char c : line.substr(line.size() - 8)) {
    std::uint32_t digit = 0;
    if (c >= '0' && c <= '9')
      digit = static_cast<std::uint32_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<std::uint32_t>(c - 'a' + 10);
    else
      return std::nullopt;
    tail.crc = tail.crc << 4 | digit;
  }
  line.remove_suffix(8);
  if (!take("\"")) return std::nullopt;
  skip_space();
  if (!take(":")) return std::nullopt;
  skip_space();
  if (!take("\"crc32\"")) return std::nullopt;
  skip_space();
  if (!take(",")) return std::nullopt;
  tail.covered = line.size();
  return tail;
}

enum class Crc { matches, differs, absent };

Crc check_crc(std::string_view line) noexcept {
  const std::optional<Tail> tail = find_tail(line);
  if (!tail) return Crc::absent;
  return crc32(line.substr(0, tail->covered)) == tail->crc ? Crc::matches : Crc::differs;
}
constexpr std::string_view crc_differs = "the CRC does not match";

// The JSON object at the start of a text: where it ends, and how many levels it has.
struct Extent {
  std::size_t end = std::string_view::npos;  ///< after the closing brace; npos: it has none
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

std::optional<RecordType> record_type(std::string_view name) noexcept {
  for (const RecordType type : {RecordType::sample, RecordType::winner, RecordType::fail,
                                RecordType::tombstone, RecordType::miss})
    if (record_type_name(type) == name) return type;
  return std::nullopt;
}

std::optional<Effort> effort(std::string_view name) noexcept {
  for (const Effort value : {Effort::cut, Effort::quick, Effort::normal, Effort::thorough})
    if (effort_name(value) == name) return value;
  return std::nullopt;
}

// The beginning of a line as to_line() writes it, up to the hash of the key.
struct Head {
  RecordType type = RecordType::sample;
  std::string_view key;
  Digest sha{};
};

std::optional<Head> own_head(std::string_view line) noexcept {
  const auto take = [&line](std::string_view what) {
    if (!line.starts_with(what)) return false;
    line.remove_prefix(what.size());
    return true;
  };
  static_assert(schema_version == 1);
  if (!take("{\"v\":1,\"type\":\"")) return std::nullopt;
  Head head;
  const std::optional<RecordType> type = record_type(line.substr(0, line.find('"')));
  if (!type) return std::nullopt;
  head.type = *type;
  line.remove_prefix(record_type_name(*type).size());
  if (!take("\",\"key\":") || !line.starts_with('{')) return std::nullopt;
  const std::size_t end = extent_of_object(line).end;
  if (end == std::string_view::npos) return std::nullopt;
  head.key = line.substr(0, end);
  line.remove_prefix(end);
  if (!take(",\"key_sha\":\"") || !from_hex(line.substr(0, line.find('"')), head.sha))
    return std::nullopt;
  return head;
}

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  require(found != object.end(), "there is no field '{}'", name);
  return *found;
}

const Json& object_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_object(), "field '{}' is no object", name);
  return value;
}

std::string text_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_string(), "field '{}' is no text", name);
  return value.get<std::string>();
}

std::string text_or_empty(const Json& object, const char* name) {
  return object.contains(name) ? text_field(object, name) : std::string();
}

bool bool_or(const Json& object, const char* name, bool otherwise) {
  if (!object.contains(name)) return otherwise;
  const Json& value = field(object, name);
  require(value.is_boolean(), "field '{}' is neither true nor false", name);
  return value.get<bool>();
}

std::int64_t integer(const Json& value, const std::string& name) {
  constexpr auto high = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  require(value.is_number_integer() &&
              (!value.is_number_unsigned() || value.get<std::uint64_t>() <= high),
          "field '{}' is no integer of 64 bits", name);
  return value.get<std::int64_t>();
}

double number_field(const Json& object, const char* name) {
  const Json& value = field(object, name);
  require(value.is_number(), "field '{}' is no number", name);
  return value.get<double>();
}

double number_or_zero(const Json& object, const char* name) {
  return object.contains(name) ? number_field(object, name) : 0.0;
}

Key read_key(const Json& object, std::string_view line) {
  const Json& value = object_field(object, "key");
  Key key;
  key.sha = text_field(object, "key_sha");
  // As it was written if possible, since it was hashed so; else as its canonical form, which a tool
  // that spaced the line differently has not changed.
  if (const std::optional<Head> head = own_head(line)) key.json = head->key;
  if (key.json.empty() || to_hex(sha256(key.json)) != key.sha) {
    key.json = nlohmann::json(value).dump();
    require(to_hex(sha256(key.json)) == key.sha, "key_sha is not the SHA-256 of the key");
  }
  return key;
}

Environment read_environment(const Json& object) {
  const Json& value = object_field(object, "env");
  Environment env;
  env.kernels = text_field(value, "kernels");
  env.cublaslt = text_or_empty(value, "cublaslt");
  env.onednn = text_or_empty(value, "onednn");
  env.openblas = text_or_empty(value, "openblas");
  env.driver = text_or_empty(value, "driver");
  env.product = text_or_empty(value, "product");
  env.tool = text_or_empty(object, "tool");
  return env;
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

measure::Stats read_stats(const Json& object) {
  const Json& value = object_field(object, "stats");
  measure::Stats stats;
  stats.count = integer(field(value, "n"), "n");
  stats.min_ms = number_field(value, "min_ms");
  stats.p20_ms = number_field(value, "p20_ms");
  stats.median_ms = number_field(value, "median_ms");
  stats.p80_ms = number_field(value, "p80_ms");
  stats.mad_ms = number_field(value, "mad_ms");
  stats.max_ms = number_or_zero(value, "max_ms");
  return stats;
}

// Requires the fields that a record of its type needs, and reads the others if they are present.
Record read_record(const Json& object, std::string_view line) {
  Record record;
  const std::string type_name = text_field(object, "type");
  const std::optional<RecordType> type = record_type(type_name);
  require(type.has_value(), "type '{}' is none of sample, winner, fail, tombstone, miss",
          type_name);
  record.type = *type;
  record.key = read_key(object, line);
  record.env = read_environment(object);
  const bool has_candidate = *type != RecordType::tombstone && *type != RecordType::miss;
  if (has_candidate || object.contains("candidate")) record.candidate = read_candidate(object);
  const bool measured = *type == RecordType::winner || *type == RecordType::sample;
  if (measured || object.contains("stats")) record.stats = read_stats(object);
  if (measured || object.contains("effort")) {
    const std::string name = text_field(object, "effort");
    const std::optional<Effort> value = effort(name);
    require(value.has_value(), "effort '{}' is none of cut, quick, normal, thorough", name);
    record.effort = *value;
  }
  record.ok = bool_or(object, "ok", *type != RecordType::fail);
  record.why = text_or_empty(object, "why");
  record.default_median_ms = number_or_zero(object, "default_median_ms");
  record.budget_hit = bool_or(object, "budget_hit", false);
  for (const auto& [name, count] : {std::pair("discarded_rounds", &record.discarded_rounds),
                                    {"disturbed_rounds", &record.disturbed_rounds},
                                    {"timed_rounds", &record.timed_rounds}})
    if (object.contains(name)) *count = integer(field(object, name), name);
  record.time = text_field(object, "time");
  return record;
}

}  // namespace

bool crc_matches(std::string_view line) noexcept {
  return check_crc(line) == Crc::matches;
}

LineKind parse(std::string_view line, Record& record, std::string& why) {
  const auto bad = [&why](std::string_view what) {
    why = what;
    return LineKind::bad;
  };
  if (line.size() > max_line_bytes)
    return bad(fmt::format("it has {} bytes; a line has at most {}", line.size(), max_line_bytes));
  const Crc crc = check_crc(line);
  if (crc == Crc::differs) return bad(crc_differs);
  const std::size_t first = line.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || line[first] != '{' ||
      extent_of_object(line.substr(first)).depth > max_depth)
    return bad("it is no record in JSON");
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return bad("it is no record in JSON");
  const auto version = object.find("v");
  if (version == object.end() || !version->is_number_integer())
    return bad("it names no schema version");
  if (*version != schema_version) {
    why = fmt::format("schema version {}; this library reads version {}", version->dump(),
                      schema_version);
    return *version > schema_version ? LineKind::newer : LineKind::bad;
  }
  if (crc == Crc::absent) return bad("it has no CRC");
  try {
    record = read_record(object, line);
    // Whoever has a record may compare and rewrite its line, which has all fields that this one may
    // leave out and says things in another way: in less than eight times the bytes and a few.
    constexpr std::size_t short_line_bytes = max_line_bytes / 16;
    if (line.size() > short_line_bytes) (void)to_line(record);
  } catch (const Error& error) {
    return bad(error.what());
  }
  return LineKind::record;
}

std::optional<Record> from_line(std::string_view line, std::string& why) {
  Record record;
  if (parse(line, record, why) != LineKind::record) return std::nullopt;
  return record;
}

LineInfo inspect(std::string_view line, bool ended) {
  LineInfo info;
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
    info.kind = LineKind::blank;
    return info;
  }
  if (line.size() <= max_line_bytes) {
    const Crc crc = check_crc(line);
    if (crc == Crc::differs) {
      info.why = crc_differs;
      return info;
    }
    if (crc == Crc::matches)
      if (const std::optional<Head> head = own_head(line)) {
        info.kind = LineKind::record;
        info.type = head->type;
        info.sha = head->sha;
        return info;
      }
  }
  Record record;
  info.kind = parse(line, record, info.why);
  if (info.kind == LineKind::record) {
    info.type = record.type;
    // Cannot fail: the hash was compared with one of our own.
    (void)from_hex(record.key.sha, info.sha);
  } else if (info.kind == LineKind::bad && !ended) {
    info.why = "it is cut short: " + info.why;
  }
  return info;
}

}  // namespace switchback::autotune
