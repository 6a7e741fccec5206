// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "autotune/store/crc32.hpp"
#include "autotune/store/sha256.hpp"
#include "core/check.hpp"
#include "measure/disturbance.hpp"

namespace switchback::autotune {

namespace {

using core::require;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The shortest text that reads back as the same number, and not as an integer: that has no -0.
std::string number(std::string_view name, double value) {
  require(std::isfinite(value), "record: {} = {}; a time must be finite", name, value);
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void check_key(const Key& key) {
  const bool one_line = std::none_of(key.json.begin(), key.json.end(),
                                     [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (!key.json.starts_with('{') || !key.json.ends_with('}') || !one_line ||
      !nlohmann::json::accept(key.json))
    core::fail(Status::invalid_argument, "record: key = {}; it must be a JSON object on one line",
               quoted(key.json));
  require(key.sha == to_hex(sha256(key.json)),
          "record: key_sha = '{}'; it must be the SHA-256 of the key", key.sha);
}

std::string candidate_json(const CandidateText& candidate) {
  std::string attributes;
  for (auto attribute = candidate.attributes.begin(); attribute != candidate.attributes.end();
       ++attribute) {
    const bool again =
        std::any_of(candidate.attributes.begin(), attribute,
                    [&](const auto& earlier) { return earlier.first == attribute->first; });
    require(!again, "record: attribute '{}' is there twice; each is given once", attribute->first);
    if (!attributes.empty()) attributes += ',';
    attributes += quoted(attribute->first) + ':' + fmt::to_string(attribute->second);
  }
  return fmt::format("{{\"engine\":{},\"attributes\":{{{}}},\"algo_hex\":{}}}",
                     quoted(candidate.engine), attributes, quoted(candidate.algo_hex));
}

}  // namespace

Key make_key(std::string canonical_json) {
  Key key;
  key.sha = to_hex(sha256(canonical_json));
  key.json = std::move(canonical_json);
  return key;
}

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

std::string_view record_type_name(RecordType type) noexcept {
  switch (type) {
    case RecordType::sample:
      return "sample";
    case RecordType::winner:
      return "winner";
    case RecordType::fail:
      return "fail";
    case RecordType::tombstone:
      return "tombstone";
    case RecordType::miss:
      return "miss";
  }
  return "unknown";
}

std::string_view effort_name(Effort effort) noexcept {
  switch (effort) {
    case Effort::cut:
      return "cut";
    case Effort::quick:
      return "quick";
    case Effort::normal:
      return "normal";
    case Effort::thorough:
      return "thorough";
  }
  return "unknown";
}

bool in_doubt(const Record& record) noexcept {
  const std::int64_t timed =
      record.timed_rounds > 0 ? record.timed_rounds : record.stats.count + record.discarded_rounds;
  return measure::Disturbance{
      .rounds = timed, .discarded = record.discarded_rounds, .disturbed = record.disturbed_rounds}
      .in_doubt();
}

std::string to_line(const Record& record) {
  check_key(record.key);
  const Environment& env = record.env;
  const measure::Stats& stats = record.stats;
  std::string line;
  const auto out = std::back_inserter(line);
  // A reader finds the type and the key's hash by their places (line.cpp): the order is fixed.
  fmt::format_to(out, "{{\"v\":{},\"type\":\"{}\",\"key\":{},\"key_sha\":\"{}\"", schema_version,
                 record_type_name(record.type), record.key.json, record.key.sha);
  fmt::format_to(out,
                 ",\"env\":{{\"kernels\":{},\"cublaslt\":{},\"onednn\":{},\"openblas\":{},"
                 "\"driver\":{},\"product\":{}}}",
                 quoted(env.kernels), quoted(env.cublaslt), quoted(env.onednn),
                 quoted(env.openblas), quoted(env.driver), quoted(env.product));
  fmt::format_to(out, ",\"candidate\":{},\"ok\":{}", candidate_json(record.candidate), record.ok);
  if (!record.why.empty()) fmt::format_to(out, ",\"why\":{}", quoted(record.why));
  fmt::format_to(out,
                 ",\"stats\":{{\"n\":{},\"min_ms\":{},\"p20_ms\":{},\"median_ms\":{},"
                 "\"p80_ms\":{},\"mad_ms\":{},\"max_ms\":{}}}",
                 stats.count, number("min_ms", stats.min_ms), number("p20_ms", stats.p20_ms),
                 number("median_ms", stats.median_ms), number("p80_ms", stats.p80_ms),
                 number("mad_ms", stats.mad_ms), number("max_ms", stats.max_ms));
  fmt::format_to(out,
                 ",\"default_median_ms\":{},\"effort\":\"{}\",\"budget_hit\":{},\"time\":{},"
                 "\"tool\":{}",
                 number("default_median_ms", record.default_median_ms), effort_name(record.effort),
                 record.budget_hit, quoted(record.time), quoted(env.tool));
  // Only where there are any, so that lines of undisturbed machines are what they were.
  if (record.discarded_rounds != 0)
    fmt::format_to(out, ",\"discarded_rounds\":{}", record.discarded_rounds);
  if (record.disturbed_rounds != 0)
    fmt::format_to(out, ",\"disturbed_rounds\":{}", record.disturbed_rounds);
  if (record.timed_rounds != 0) fmt::format_to(out, ",\"timed_rounds\":{}", record.timed_rounds);
  fmt::format_to(out, ",\"crc32\":\"{:08x}\"}}", crc32(line));
  require(line.size() <= max_line_bytes, "record: its line has {} bytes; a line has at most {}",
          line.size(), max_line_bytes);
  return line;
}

}  // namespace switchback::autotune
