// SPDX-License-Identifier: Apache-2.0
#include "bench/run/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.hpp"

template <>
struct fmt::formatter<nlohmann::ordered_json> : fmt::formatter<std::string_view> {
  auto format(const nlohmann::ordered_json& value, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(value.dump(), context);
  }
};

namespace switchback::bench {

namespace {

using Json = nlohmann::ordered_json;
using core::require;

std::string time_text(const std::optional<double>& time) {
  return time ? number_text(*time) : "null";
}

std::int64_t read_integer(const Json& object, const char* key, std::int64_t high) {
  const Json& value = object[key];
  require(value.is_number_integer() && value.is_number_unsigned() &&
              value.get<std::uint64_t>() >= 1 &&
              value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high),
          "{} is {}; it must be an integer from 1 to {}", key, value, high);
  return value.get<std::int64_t>();
}

bool is_cast(std::string_view key) {
  return key == "cast_x" || key == "cast_g" || key == "cast_w";
}

std::optional<double> read_time(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  // Only a cast's key may be missing, see RecordKeys.
  if (found == object.end()) return std::nullopt;
  const Json& value = *found;
  if (value.is_null()) return std::nullopt;
  require(value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0,
          "{} is {}; it must be a time in ms, or null", key, value);
  return value.get<double>();
}

}  // namespace

const std::vector<std::string>& record_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all{"repeat", "batch_size", "dim_out", "dim_in", "wm", "switch"};
    for (std::size_t i = 0; i < record_fields; ++i)
      all.emplace_back(field_table()[i].name);
    for (const SumInfo& sum : sum_table())
      all.emplace_back(sum.name);
    return all;
  }();
  return keys;
}

std::string number_text(double value) {
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[64];
  const double magnitude = std::abs(value);
  const auto format = magnitude >= 1e-4 && magnitude < 1e16 ? std::chars_format::fixed
                                                            : std::chars_format::scientific;
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value, format);
  std::string text(buffer, end);
  if (format == std::chars_format::fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string to_line(const Record& record) {
  const Case& c = record.shape;
  const std::string wm = c.wm == std::floor(c.wm) && std::abs(c.wm) < 1e15
                             ? fmt::format("{}", static_cast<std::int64_t>(c.wm))
                             : number_text(c.wm);
  std::string line = fmt::format(
      "{{\"repeat\": {}, \"batch_size\": {}, \"dim_out\": {}, \"dim_in\": {}, \"wm\": {}, "
      "\"switch\": {}",
      record.repeat, c.batch_size, c.dim_out, c.dim_in, wm, c.narrows);
  for (std::size_t i = 0; i < record_fields; ++i)
    line += fmt::format(", \"{}\": {}", field_table()[i].name, time_text(record.times_ms[i]));
  for (const SumInfo& sum : sum_table())
    line += fmt::format(", \"{}\": {}", sum.name, time_text(sum_of(sum, record.times_ms)));
  return line + "}";
}

std::string kind_of_line(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return {};
  const auto found = object.find("type");
  if (found == object.end() || !found->is_string()) return {};
  const auto type = found->get<std::string>();
  if (type == "run_start" || type == "case" || type == "run_end")
    return "a line of a run file (NAME.run.jsonl), which describes how the records of NAME.jsonl "
           "were measured; give NAME.jsonl";
  if (type.starts_with("micro")) return "a line of 'micro --out'; a report shows only one kind";
  if (type.starts_with("verify") || type == "check") return "a line of 'verify --out'";
  if (type == "info") return "the output of 'info --json'";
  return {};
}

Record parse_record(std::string_view line) {
  return parse_record(line, RecordKeys::all);
}

Record parse_record(std::string_view line, RecordKeys allowed) {
  // The keys are collected in the order of the text, so that a repeated key is found.
  std::vector<std::string> keys;
  bool nested = false;
  Json object;
  try {
    object = Json::parse(line, [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::key && keys.size() < 1000)
        keys.push_back(parsed.get<std::string>());
      if (depth > 0 &&
          (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start))
        nested = true;
      return !nested;
    });
  } catch (const Json::parse_error& error) {
    core::fail(Status::invalid_argument, "not JSON at byte {}", error.byte);
  } catch (const nlohmann::json::exception&) {
    core::fail(Status::invalid_argument, "not readable JSON");
  }
  if (const std::string kind = kind_of_line(line); !kind.empty())
    core::fail(Status::invalid_argument, "not a record but {}", kind);
  require(!nested && object.is_object(), "not a flat JSON object");
  std::vector<std::string> wanted = record_keys();
  if (allowed == RecordKeys::all_or_without_casts &&
      std::none_of(keys.begin(), keys.end(), is_cast))
    std::erase_if(wanted, is_cast);
  for (std::size_t i = 0; i < std::max(keys.size(), wanted.size()); ++i) {
    require(i < keys.size(), "no key '{}'; a record has {} keys", wanted[i], wanted.size());
    require(i < wanted.size(), "a surplus key '{}'; a record has {} keys", keys[i], wanted.size());
    require(keys[i] == wanted[i], "key {} is '{}'; it must be '{}'", i + 1, keys[i], wanted[i]);
  }

  Record record;
  constexpr std::int64_t high = std::int64_t{1} << 53;
  record.repeat = read_integer(object, "repeat", high);
  record.shape.batch_size = read_integer(object, "batch_size", high);
  record.shape.dim_out = read_integer(object, "dim_out", high);
  record.shape.dim_in = read_integer(object, "dim_in", high);
  const Json& wm = object["wm"];
  require(wm.is_number() && std::isfinite(wm.get<double>()) && wm.get<double>() > 0,
          "wm is {}; it must be a number above 0", wm);
  record.shape.wm = wm.get<double>();
  const Json& narrows = object["switch"];
  require(narrows.is_boolean(), "switch is {}; it must be true or false", narrows);
  record.shape.narrows = narrows.get<bool>();
  for (std::size_t i = 0; i < record_fields; ++i)
    record.times_ms[i] = read_time(object, field_table()[i].name);
  for (const SumInfo& sum : sum_table()) {
    const std::optional<double> written = read_time(object, sum.name);
    const std::optional<double> computed = sum_of(sum, record.times_ms);
    if (written != computed)
      core::fail(Status::invalid_argument, "{} is {}; its parts add up to {}", sum.name,
                 time_text(written), time_text(computed));
  }
  return record;
}

std::vector<Record> parse_records(std::string_view text, std::string_view file_name,
                                  RecordKeys keys) {
  std::vector<Record> records;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    try {
      records.push_back(parse_record(line, keys));
    } catch (const Error& error) {
      const bool other_file = !line.starts_with("{\"repeat\"") && kind_of_line(line).empty();
      core::fail(
          Status::invalid_argument, "{}:{}: {}{}", file_name, number, error.what(),
          other_file ? "; a file of records has one JSON object per line, {\"repeat\": …" : "");
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return records;
}

bool complete(const Record& record, const FieldSet& fields) noexcept {
  for (std::size_t i = 0; i < record_fields; ++i)
    if (fields[i] && !record.times_ms[i]) return false;
  return true;
}

}  // namespace switchback::bench
