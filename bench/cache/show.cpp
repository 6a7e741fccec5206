// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"

namespace switchback::bench {

using autotune::Record;
using autotune::RecordType;

namespace {

// Lines before a tombstone in their own file are of the past.
std::vector<const CacheLine*> forgotten_lines(const std::vector<const CacheLine*>& lines) {
  for (std::size_t i = lines.size(); i-- > 0;)
    if (lines[i]->record.type == RecordType::tombstone)
      return {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(i)};
  return {};
}

std::string environment_table(const autotune::Environment& then, const autotune::Environment& now) {
  Table table({"measured with", "then", "this is", ""}, {"then", "this is", ""});
  const auto add = [&](const char* name, const std::string& a, const std::string& b) {
    const auto cell = [](const std::string& text) { return text.empty() ? "-" : text; };
    if (!a.empty() || !b.empty()) table.add({name, cell(a), cell(b), a == b ? "" : "differs"});
  };
  add("kernels", then.kernels, now.kernels);
  add("cuBLASLt", then.cublaslt, now.cublaslt);
  add("oneDNN", then.onednn, now.onednn);
  add("OpenBLAS", then.openblas, now.openblas);
  add("driver", then.driver, now.driver);
  add("product", then.product, now.product);
  add("version", then.tool, now.tool);
  return table.text_for(stdout);
}

void print_winner(const Picked& picked, std::optional<ConfigOp> op,
                  const autotune::Environment& now) {
  if (picked.line == nullptr) {
    fmt::print("winner   none{}\n", picked.why.empty() ? "" : "; " + printable(picked.why));
    return;
  }
  const Record& record = picked.line->record;
  fmt::print("winner   {}\n", printable(words_of(record.candidate, op)));
  fmt::print(
      "         {} ms, {} the default's {} ms; effort {}{}{}, {}\n", number(record.stats.median_ms),
      speedup_text(record), number(record.default_median_ms), autotune::effort_name(record.effort),
      record.budget_hit ? " (the budget ended it)" : "",
      record.disturbed_rounds > 0 ? fmt::format(", {} rounds disturbed{}", record.disturbed_rounds,
                                                autotune::in_doubt(record) ? " (in doubt)" : "")
                                  : "",
      printable(record.time));
  fmt::print("from     {}, {}\n", tune_origin_name(picked.origin),
             printable(place_of(*picked.line)));
  fmt::print("here     {}\n\n",
             picked.usable ? "it is used" : "it is not used: " + printable(picked.why));
  fmt::print("{}", environment_table(record.env, now));
}

}  // namespace

int cache_show(const CacheOptions& options, const std::string& key) {
  const CacheView view(options);
  StatusLine out(false);
  const std::vector<CacheFile> files = view.read(true);
  for (const CacheFile& file : files)
    warn_of_skipped(file, out);
  const std::vector<KeyGroup> groups = group_keys(files);
  const KeyGroup& group = find_key(groups, key);
  const Picked picked = pick(group, view);
  const std::optional<ConfigOp> op =
      group.parts ? std::optional(group.parts->query.op) : std::nullopt;

  std::vector<const CacheLine*> lines;
  std::vector<const CacheLine*> past;
  for (const auto* source : {&group.cache, &group.system_list}) {
    const std::vector<const CacheLine*> before = forgotten_lines(*source);
    past.insert(past.end(), before.begin(), before.end());
    lines.insert(lines.end(), source->begin(), source->end());
  }
  const auto is_past = [&](const CacheLine* line) {
    return std::find(past.begin(), past.end(), line) != past.end();
  };
  std::stable_sort(lines.begin(), lines.end(), [](const CacheLine* a, const CacheLine* b) {
    return a->record.stats.median_ms < b->record.stats.median_ms;
  });

  if (options.json) {
    nlohmann::ordered_json json;
    json["type"] = "key";
    json["key_sha"] = group.key.sha;
    json["key"] = nlohmann::ordered_json::parse(group.key.json);
    if (group.parts) {
      json["problem"] = describe(group);
      json["machine"] = autotune::describe(group.parts->machine);
    } else {
      json["unreadable"] = group.why;
    }
    json["usable"] = picked.usable;
    if (!picked.usable) json["why"] = picked.why;
    if (picked.line != nullptr) {
      json["origin"] = tune_origin_name(picked.origin);
      json["winner"] = to_json(*picked.line);
    }
    json["records"] = nlohmann::ordered_json::array();
    for (const CacheLine* line : lines) {
      nlohmann::ordered_json entry = to_json(*line);
      entry["forgotten"] = is_past(line);
      json["records"].push_back(std::move(entry));
    }
    print_json(json);
    return exit_codes::ok;
  }

  fmt::print("key      {}\n         {}\n", group.key.sha, printable(group.key.json));
  fmt::print("problem  {}\n", printable(describe(group)));
  if (group.parts) fmt::print("machine  {}\n", printable(autotune::describe(group.parts->machine)));
  print_winner(picked, op, view.tuner().environment);

  Table measured({"candidate", "record", "n", "min ms", "p20", "median", "p80", "MAD", "max",
                  ": default", "effort", "date", "from", ""},
                 {"record", "effort", "date", "from", ""});
  Table failed({"wrong, or could not run", "why", "date", "from", ""}, {"why", "date", "from", ""});
  for (const CacheLine* line : lines) {
    const Record& record = line->record;
    const std::string note = is_past(line) ? "forgotten" : "";
    if (record.type == RecordType::fail)
      failed.add(
          {words_of(record.candidate, op), record.why, date_of(record), place_of(*line), note});
    if (record.type != RecordType::winner && record.type != RecordType::sample) continue;
    const measure::Stats& s = record.stats;
    measured.add({words_of(record.candidate, op),
                  std::string(autotune::record_type_name(record.type)), std::to_string(s.count),
                  number(s.min_ms), number(s.p20_ms), number(s.median_ms), number(s.p80_ms),
                  number(s.mad_ms), number(s.max_ms), speedup_text(record),
                  std::string(autotune::effort_name(record.effort)), date_of(record),
                  place_of(*line), note});
  }
  if (!measured.empty()) fmt::print("\n{}", measured.text_for(stdout));
  if (!failed.empty()) fmt::print("\n{}", failed.text_for(stdout));
  for (const CacheLine* line : lines)
    if (line->record.type == RecordType::tombstone)
      fmt::print("\nforgotten at {} ({}): what is before that in this file does not count\n",
                 printable(line->record.time), printable(place_of(*line)));
  return exit_codes::ok;
}

}  // namespace switchback::bench
