// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/side.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>

#include "bench/cli/cli.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/record_file.hpp"
#include "core/check.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

namespace {

bool is_statistic(const Json& value) {
  return value.is_object() && value.contains("median") && value["median"].is_number();
}

double number_of(const Json& object, const char* key, double otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : otherwise;
}

std::vector<double> samples_of(const Json& value) {
  std::vector<double> samples;
  if (value.is_array())
    for (const Json& x : value)
      if (x.is_number()) samples.push_back(x.get<double>());
  return samples;
}

/// A case's line in a run file, with the run_start line of its run.
struct LoggedCase {
  Json start;
  Json line;
};

/// The cases in a run file that wrote records, in file order, by case id.
struct Logged {
  std::map<std::string, std::vector<LoggedCase>> cases;
  Json last_start;

  /// The run file's line for record number `k` of the `count` records of a case. It is counted from
  /// the end, because a file may have lost records or lines at its beginning.
  [[nodiscard]] const LoggedCase* of(const std::string& id, std::size_t k,
                                     std::size_t count) const {
    const auto found = cases.find(id);
    if (found == cases.end()) return nullptr;
    const std::size_t from_end = count - k;
    return from_end <= found->second.size() ? &found->second[found->second.size() - from_end]
                                            : nullptr;
  }
};

Logged read_log(const std::string& path) {
  Logged log;
  struct stat status {};
  const std::string beside = run_log_path(path);
  if (path == "-" || ::stat(beside.c_str(), &status) != 0) return log;
  for (const std::string& text : split_list(read_file(beside), '\n')) {
    Json line = Json::parse(text, nullptr, false);
    const std::string type = text_at(line, "type");
    if (type == "run_start") log.last_start = std::move(line);
    if (type != "case") continue;
    const std::string written = text_at(line, "status");
    if (written == "ok" || written == "wrong" || written == "unsupported")
      log.cases[text_at(line, "id")].push_back({log.last_start, std::move(line)});
  }
  return log;
}

bool disturbed(const Json& line) {
  const auto at = line.find("disturbed");
  return at != line.end() && at->is_boolean() && at->get<bool>();
}

CaseTimes& find_or_add(std::vector<CaseTimes>& cases, CaseTimes wanted) {
  for (CaseTimes& c : cases)
    if (c.workload == wanted.workload && c.id == wanted.id && c.key == wanted.key) return c;
  return cases.emplace_back(std::move(wanted));
}

FieldTimes& find_or_add(std::vector<FieldTimes>& fields, std::string_view name, bool sum = false) {
  for (FieldTimes& f : fields)
    if (f.name == name) return f;
  FieldTimes field;
  field.name = name;
  field.sum = sum;
  return fields.emplace_back(std::move(field));
}

// The times of one field in the run file, with its median from the record.
RunTimes logged_times(const Json& field, double median_ms) {
  RunTimes run;
  run.median_ms = median_ms;
  if (!field.is_object()) return run;
  if (field.contains("mad_ms")) run.mad_ms = number_of(field, "mad_ms", 0);
  run.count = static_cast<std::int64_t>(number_of(field, "count", 0));
  run.times_ms = samples_of(field.value("times_ms", Json()));
  return run;
}

// The sum of several fields in each round. Without samples of all of them, only the median is
// known.
RunTimes sum_times(const SumInfo& sum, double median_ms, const Json& fields) {
  RunTimes without, total;
  without.median_ms = total.median_ms = median_ms;
  for (std::size_t p = 0; p < sum.parts.size(); ++p) {
    const auto part = fields.find(std::string(field_name(sum.parts[p])));
    const std::vector<double> times =
        part == fields.end() ? std::vector<double>() : samples_of(part->value("times_ms", Json()));
    if (p == 0) total.times_ms.assign(times.size(), 0);
    if (times.empty() || times.size() != total.times_ms.size()) return without;
    for (std::size_t i = 0; i < times.size(); ++i)
      total.times_ms[i] += times[i];
  }
  total.count = static_cast<std::int64_t>(total.times_ms.size());
  total.mad_ms = measure::middle(total.times_ms).mad;
  return total;
}

void add_run_record(Side& side, const Record& record, const LoggedCase* logged) {
  static const Json nothing = Json::object();
  CaseTimes wanted{.workload = "run", .id = case_id(record.shape), .key = {}, .fields = {}};
  if (logged != nullptr)
    for (const char* member : {"dtype", "mode"})
      if (std::string text = text_at(logged->start, member); !text.empty()) {
        // A run with cold caches is another case, so the caches are a part of the key.
        if (const std::string caches = text_at(logged->start, "caches");
            !caches.empty() && member == std::string_view("mode"))
          text += fmt::format(", {} caches", caches);
        wanted.key.emplace_back(member, std::move(text));
      }
  CaseTimes& c = find_or_add(side.cases, std::move(wanted));
  const bool disturbed_run = logged != nullptr && disturbed(logged->line);
  const auto of_line = logged != nullptr ? logged->line.find("fields") : nothing.end();
  const Json& fields = logged != nullptr && of_line != logged->line.end() && of_line->is_object()
                           ? *of_line
                           : nothing;
  const std::string started = logged != nullptr ? text_at(logged->start, "time") : "";
  const auto add = [&](std::string_view name, RunTimes run, bool sum) {
    run.disturbed = disturbed_run;
    run.started = started;
    find_or_add(c.fields, name, sum).runs.push_back(std::move(run));
  };
  for (std::size_t i = 0; i < all_fields; ++i) {
    const std::string name(field_name(static_cast<Field>(i)));
    const Json field = fields.value(name, Json());
    // A field that is not in records has a median only if its result was correct.
    std::optional<double> median;
    if (i < record_fields)
      median = record.times_ms[i];
    else if (text_at(field, "status") == "ok" && field.contains("median_ms"))
      median = number_of(field, "median_ms", 0);
    if (!median || !(*median > 0)) continue;
    add(name, logged_times(field, *median), false);
    if (field.is_object()) find_or_add(c.fields, name).engine = text_at(field, "engine");
  }
  for (const SumInfo& sum : sum_table())
    if (const std::optional<double> total = sum_of(sum, record.times_ms); total && *total > 0)
      add(sum.name, sum_times(sum, *total, fields), true);
}

void add_workload_record(Side& side, const Json& record, const Json* samples, bool disturbed_run,
                         const std::string& started) {
  std::vector<std::pair<std::string, RunTimes>> times;
  for (const auto& [name, value] : record.items()) {
    if (!is_statistic(value) || !(value["median"].get<double>() > 0)) continue;
    RunTimes run;
    run.median_ms = value["median"].get<double>();
    if (value.contains("mad")) run.mad_ms = number_of(value, "mad", 0);
    run.count = static_cast<std::int64_t>(number_of(value, "count", 0));
    if (samples != nullptr && samples->is_object())
      run.times_ms = samples_of(samples->value(name, Json()));
    run.disturbed = disturbed_run;
    run.started = started;
    times.emplace_back(name, std::move(run));
  }
  // The record has no times, for example because its case did not fit into memory.
  if (times.empty()) return;
  CaseTimes& c = find_or_add(side.cases, {.workload = text_at(record, "workload"),
                                          .id = text_at(record, "case"),
                                          .key = leading_members(record),
                                          .fields = {}});
  for (auto& [name, run] : times)
    find_or_add(c.fields, name).runs.push_back(std::move(run));
}

void add_micro_row(Side& side, const Json& row, const std::string& caches) {
  CaseTimes wanted{.workload = "micro " + text_at(row, "bench"), .id = {}, .key = {}, .fields = {}};
  wanted.id = fmt::format("{}x{}x{}", text_at(row, "batch"), text_at(row, "dim_in"),
                          text_at(row, "dim_out"));
  for (const char* member : {"variant", "dtype", "output"})
    if (row.contains(member) && row[member].is_string())
      wanted.key.emplace_back(member, text_at(row, member));
  if (!caches.empty()) wanted.key.emplace_back("caches", caches);
  for (const char* party : {"subject", "rival"}) {
    const auto at = row.find(party);
    if (at != row.end() && at->is_object()) wanted.key.emplace_back(party, text_at(*at, "name"));
  }
  CaseTimes& c = find_or_add(side.cases, std::move(wanted));
  for (const char* party : {"subject", "rival"}) {
    const auto at = row.find(party);
    if (at == row.end() || !at->is_object() || !(number_of(*at, "median_ms", 0) > 0)) continue;
    find_or_add(c.fields, party).runs.push_back(logged_times(*at, number_of(*at, "median_ms", 0)));
  }
}

void describe(Side& side, const Json& start) {
  const auto machine = start.find("machine");
  if (!start.is_object() || machine == start.end()) return;
  side.machine =
      fmt::format("{}, {}, {}, {} threads", text_at(*machine, "cpu"), text_at(*machine, "device"),
                  text_at(*machine, "isa"), text_at(*machine, "threads"));
  side.commit = text_at(start, "commit");
  if (side.commit.empty()) side.commit = text_at(*machine, "tool_commit");
}

}  // namespace

KeyMembers leading_members(const Json& record) {
  KeyMembers key;
  for (const auto& [name, value] : record.items()) {
    if (is_statistic(value)) break;
    // These members do not tell cases apart; `fits` says whether a case fitted into memory.
    if (name == "workload" || name == "case" || name == "fits") continue;
    if (value.is_string() || value.is_boolean() || value.is_number_integer())
      key.emplace_back(name, text_at(record, name.c_str()));
  }
  return key;
}

const FieldTimes* CaseTimes::field(std::string_view name) const {
  for (const FieldTimes& f : fields)
    if (f.name == name) return &f;
  return nullptr;
}

std::string CaseTimes::name() const {
  std::string text = workload + " " + id;
  for (const auto& [member, value] : key)
    text += fmt::format(" {}={}", member, value);
  return text;
}

bool same_case(const CaseTimes& a, const CaseTimes& b) {
  if (a.workload != b.workload || a.id != b.id) return false;
  for (const auto& [name, value] : a.key)
    for (const auto& [other, other_value] : b.key)
      if (name == other && value != other_value) return false;
  return true;
}

Side load_side(const std::string& path) {
  Side side;
  side.path = path == "-" ? "standard input" : path;
  const Logged log = read_log(path);
  side.has_run_file = !log.last_start.is_null();
  describe(side, log.last_start);
  std::vector<std::string> lines;
  const std::string text = read_file(path);
  for (const std::string& line : split_list(text, '\n'))
    lines.push_back(line);
  // An incomplete last line, which is still being written or was truncated, is not a record.
  if (!lines.empty() && !text.ends_with('\n') && !Json::accept(lines.back())) lines.pop_back();

  // A record with its position in the file, from which the matching line of the run file is found.
  struct Place {
    Json record;  ///< the record as JSON, if it is of another workload than `run`
    std::optional<Record> timed;
    std::string id;
    std::size_t row = 0;  ///< the position among the rows of one run of the case
  };
  std::vector<Place> places;
  std::string micro_caches;
  // The records of one run of a case are consecutive. A key that occurs again begins the case's
  // next run.
  std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> runs;  // first, count
  std::map<std::string, std::vector<KeyMembers>> keys_of_run;
  for (std::size_t number = 0; number < lines.size(); ++number) {
    const Json line = Json::parse(lines[number], nullptr, false);
    if (line.is_object() && text_at(line, "type") == "micro") {
      add_micro_row(side, line, micro_caches);
      continue;
    }
    if (const std::string type = text_at(line, "type"); type.starts_with("micro_")) {
      if (type == "micro_start") {
        describe(side, line);
        micro_caches = text_at(line, "caches");
      }
      continue;
    }
    Place place;
    try {
      if (line.is_object() && line.contains("workload") && line.contains("case")) {
        place.id = text_at(line, "case");
        place.record = line;
      } else {
        place.timed = parse_record(lines[number], RecordKeys::all_or_without_casts);
        place.id = case_id(place.timed->shape);
      }
    } catch (const Error& error) {
      core::fail(Status::invalid_argument, "{}:{}: {}", side.path, number + 1, error.what());
    }
    const KeyMembers key = place.timed ? KeyMembers() : leading_members(place.record);
    std::vector<KeyMembers>& seen = keys_of_run[place.id];
    auto& of_case = runs[place.id];
    if (of_case.empty() || std::find(seen.begin(), seen.end(), key) != seen.end()) {
      of_case.emplace_back(places.size(), 0);
      seen.clear();
    }
    seen.push_back(key);
    place.row = of_case.back().second++;
    places.push_back(std::move(place));
  }
  std::map<std::string, std::size_t> at_run;
  for (const Place& place : places) {
    const std::size_t run = place.row == 0 ? at_run[place.id]++ : at_run[place.id] - 1;
    const LoggedCase* logged = log.of(place.id, run, runs[place.id].size());
    if (place.timed) {
      add_run_record(side, *place.timed, logged);
      continue;
    }
    const Json* samples = nullptr;
    if (logged != nullptr)
      if (const auto all = logged->line.find("samples");
          all != logged->line.end() && all->is_array() && place.row < all->size())
        samples = &(*all)[place.row];
    add_workload_record(side, place.record, samples, logged != nullptr && disturbed(logged->line),
                        logged != nullptr ? text_at(logged->start, "time") : "");
  }
  core::require(!side.cases.empty(), "{}: it has no record with times", side.path);
  return side;
}

}  // namespace switchback::bench
