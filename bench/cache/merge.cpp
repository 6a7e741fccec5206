// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "autotune/store/compaction.hpp"
#include "autotune/store/line.hpp"
#include "autotune/store/merge.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Conflict;
using autotune::Record;
using autotune::RecordType;

namespace {

// The lines of a newer schema, which must not be dropped, each once and sorted.
std::set<std::string> newer_lines(const std::vector<CacheFile>& files) {
  std::set<std::string> lines;
  for (const CacheFile& file : files)
    autotune::for_each_line(file.text, [&](std::int64_t, std::string_view line, bool ended) {
      if (autotune::inspect(line, ended).kind == autotune::LineKind::newer) lines.emplace(line);
    });
  return lines;
}

std::int64_t count(const std::vector<Record>& records, RecordType type) {
  return std::count_if(records.begin(), records.end(),
                       [type](const Record& record) { return record.type == type; });
}

std::string machine_text(const Record& record) {
  std::string why;
  const auto parts = autotune::parse_key(record.key.json, why);
  return parts ? autotune::describe(parts->machine) : "unknown: " + why;
}

// The machines that records belong to, so where a file can be used.
std::map<std::string, std::int64_t> machines_of(const std::vector<Record>& records) {
  std::map<std::string, std::int64_t> winners;
  for (const Record& record : records)
    if (record.type == RecordType::winner) ++winners[machine_text(record)];
  return winners;
}

void report_machines(const std::vector<Record>& records) {
  std::map<std::string, Products> products;
  for (const Record& record : records)
    if (record.type == RecordType::winner) ++products[machine_text(record)][record.env.product];
  Table table({"for", "measured on", "winners"}, {"measured on"});
  for (const auto& [machine, winners] : machines_of(records))
    table.add({machine, text_of(products[machine]), std::to_string(winners)});
  if (!table.empty()) fmt::print("{}\n", table.text_for(stdout));
}

}  // namespace

std::vector<CacheFile> read_inputs(std::string_view argument, const std::vector<std::string>& names,
                                   StatusLine& out) {
  std::vector<CacheFile> files;
  for (const std::string& name : names) {
    std::error_code error;
    const bool is_directory = fs::is_directory(name, error);
    const std::vector<fs::path> paths =
        is_directory ? files_of_cache(name) : std::vector<fs::path>{name};
    core::require(!paths.empty(), "{} {}: it is a directory without a cache (v1/*/tune.jsonl)",
                  argument, name);
    for (const fs::path& path : paths) {
      files.push_back(read_cache_file(path, TuneOrigin::exact, false));
      const CacheFile& file = files.back();
      if (!file.exists)
        core::fail(Status::io_error, "{} {}: there is no such file", argument, path.string());
      if (!file.problem.empty())
        core::fail(Status::io_error, "{} {}: {}", argument, path.string(), file.problem);
      warn_of_skipped(file, out);
    }
  }
  return files;
}

std::int64_t report_bad_inputs(const std::vector<CacheFile>& files, StatusLine& out) {
  std::int64_t lines = 0;
  for (const CacheFile& file : files) {
    lines += static_cast<std::int64_t>(file.skipped.size());
    if (file.lines > 0 && file.records.empty() && file.newer.empty())
      out.warning(fmt::format("{}: there is no record in it", file.path.string()));
  }
  return lines;
}

void report_conflicts(const CacheOptions& options, const std::vector<Conflict>& conflicts) {
  Table table({"two winners of", "kept", "speed-up", "effort", "date", "dropped", "speed-up",
               "effort", "date"},
              {"kept", "effort", "date", "dropped"});
  for (const Conflict& conflict : conflicts) {
    std::string why;
    const auto parts = autotune::parse_key(conflict.kept.key.json, why);
    const std::optional<ConfigOp> op = parts ? std::optional(parts->query.op) : std::nullopt;
    const std::string problem = parts ? autotune::describe(parts->query) : conflict.kept.key.json;
    if (options.json) {
      const auto side = [](const Record& record) {
        return nlohmann::ordered_json{{"candidate", to_json(record.candidate)},
                                      {"speedup", speedup_of(record)},
                                      {"effort", autotune::effort_name(record.effort)},
                                      {"time", record.time}};
      };
      print_json({{"type", "conflict"},
                  {"key_sha", conflict.kept.key.sha},
                  {"problem", problem},
                  {"kept", side(conflict.kept)},
                  {"dropped", side(conflict.dropped)}});
      continue;
    }
    std::vector<std::string> row = {problem};
    for (const Record* record : {&conflict.kept, &conflict.dropped})
      row.insert(row.end(), {words_of(record->candidate, op), speedup_text(*record),
                             std::string(autotune::effort_name(record->effort)), date_of(*record)});
    table.add(std::move(row));
  }
  if (!table.empty()) fmt::print("{}\n", table.text_for(stdout));
}

int cache_merge(const CacheOptions& options, const CacheMergeOptions& what) {
  StatusLine out(false);
  check_new_file("OUT", what.out, what.force);
  const std::vector<CacheFile> files = read_inputs("IN", what.in, out);
  std::vector<std::vector<Record>> caches;
  std::size_t given = 0;
  bool has_out = false;
  std::error_code ignored;
  for (const CacheFile& file : files) {
    // The file that is written may grow meanwhile; it is read again under its lock.
    has_out = has_out || fs::equivalent(file.path, what.out, ignored);
    given += file.records.size();
    caches.push_back(records_of(file));
  }
  std::vector<Conflict> conflicts;
  std::vector<Record> merged = autotune::merge(caches, conflicts);
  std::set<std::string> newer = newer_lines(files);
  const std::int64_t bad = report_bad_inputs(files, out);
  const int code = bad > 0 ? exit_codes::failed : exit_codes::ok;
  if (merged.empty() && newer.empty()) {
    if (options.json)
      print_json({{"type", "merge"},
                  {"out", ""},
                  {"files", files.size()},
                  {"read", given},
                  {"written", 0},
                  {"winners", 0},
                  {"conflicts", conflicts.size()},
                  {"unreadable", bad}});
    else
      fmt::print("There is no record to merge, and no file was written.\n");
    return code;
  }
  fs::path lock = what.out;
  lock += ".lock";
  if (fs::exists(lock, ignored)) {
    // Whether programs append to this file.
    autotune::Store(what.out, patient(out)).update([&](std::vector<Record> current) {
      if (has_out) caches.push_back(std::move(current));
      conflicts.clear();
      merged = autotune::merge(caches, conflicts);
      return merged;
    });
    const CacheFile written = read_cache_file(what.out);
    if (written.newer.size() < newer.size())
      out.warning(fmt::format("OUT {}: {} lines of a newer schema stay in their files alone",
                              what.out, newer.size() - written.newer.size()));
  } else {
    std::string text = lines_of(merged);
    for (const std::string& line : newer)
      text += line + '\n';
    write_new_file(what.out, text);
  }
  report_conflicts(options, conflicts);
  if (options.json) {
    print_json({{"type", "merge"},
                {"out", what.out},
                {"files", files.size()},
                {"read", given},
                {"written", merged.size()},
                {"winners", count(merged, RecordType::winner)},
                {"conflicts", conflicts.size()},
                {"unreadable", bad}});
    return code;
  }
  report_machines(merged);
  fmt::print("{} records of {} files became {} in {}, {} of them winners; {} conflicts\n", given,
             files.size(), merged.size(), what.out, count(merged, RecordType::winner),
             conflicts.size());
  if (bad > 0) fmt::print("{} lines of them cannot be read and were left out\n", bad);
  return code;
}

int cache_export(const CacheOptions& options, const CacheExportOptions& what) {
  StatusLine out(false);
  check_new_file("FILE", what.out, what.force);
  std::vector<fs::path> paths;
  fs::path where = cache_directory_of(options);
  if (what.all) {
    paths = files_of_cache(where);
  } else {
    const CacheView view(options);
    where = view.tuner().store->file();
    paths.push_back(where);
  }
  std::vector<std::vector<Record>> caches;
  std::int64_t read = 0;
  std::int64_t left_out = 0;  // winners in doubt
  for (const fs::path& path : paths) {
    const CacheFile file = read_cache_file(path);
    if (!file.problem.empty()) core::fail(Status::io_error, "{}: {}", path.string(), file.problem);
    warn_of_skipped(file, out);
    read += static_cast<std::int64_t>(file.records.size());
    const std::string text = autotune::worth_keeping(file.text, !what.winners).text;
    std::vector<Record>& records = caches.emplace_back();
    autotune::for_each_line(text, [&](std::int64_t, std::string_view line, bool) {
      std::string why;
      std::optional<Record> record = autotune::from_line(line, why);
      if (!record || record->type == RecordType::tombstone || record->type == RecordType::miss)
        return;
      // What failed failed, however busy the machine was.
      if (!what.doubtful && record->type != RecordType::fail && autotune::in_doubt(*record)) {
        left_out += record->type == RecordType::winner ? 1 : 0;
        return;
      }
      records.push_back(std::move(*record));
    });
  }
  std::vector<Conflict> none;  // what one file holds was decided by its own rules
  const std::vector<Record> records = autotune::merge(caches, none);
  if (!records.empty()) write_new_file(what.out, lines_of(records));
  if (options.json) {
    print_json({{"type", "export"},
                {"file", records.empty() ? "" : what.out},
                {"read", read},
                {"written", records.size()},
                {"winners", count(records, RecordType::winner)},
                {"left_out_in_doubt", left_out},
                {"machines", machines_of(records)}});
    return exit_codes::ok;
  }
  if (left_out > 0)
    fmt::print(
        "{} winners are left out: they are in doubt, since other programs disturbed the "
        "measurement\n('switchback-bench tune' measures them again; --in-doubt takes them).\n",
        left_out);
  if (records.empty()) {
    fmt::print(
        "There is nothing in the cache to export ({}), and no file was written; 'switchback-bench "
        "tune' fills it.\n",
        where.string());
    return exit_codes::ok;
  }
  report_machines(records);
  fmt::print(
      "{} records in {}, {} of them winners. On another machine 'switchback-bench cache import' "
      "takes\nit, or put it into a directory that SWITCHBACK_TUNE_SYSTEM names; it is used where "
      "the machine is\none of those above and libraries and kernels are the same.\n",
      records.size(), what.out, count(records, RecordType::winner));
  return exit_codes::ok;
}

}  // namespace switchback::bench
