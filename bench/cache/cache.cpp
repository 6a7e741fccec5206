// SPDX-License-Identifier: Apache-2.0
#include "bench/cache/cache.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string state_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return error && error != std::errc::no_such_file_or_directory ? error.message()
                                                                  : "does not exist yet";
  if (fs::is_directory(status)) return "directory";
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? error.message() : format_bytes(static_cast<double>(bytes));
}

// Which option or environment variable determined the cache directory, in the order in which the
// library asks for them.
std::string cache_set_by(const CacheOptions& options) {
  if (!options.cache.empty()) return "--cache";
  if (!variable("SWITCHBACK_TUNE_CACHE").empty()) return "SWITCHBACK_TUNE_CACHE";
  return variable("XDG_CACHE_HOME").starts_with('/') ? "XDG_CACHE_HOME" : "HOME";
}

struct Place {
  const char* name;
  fs::path path;
  std::string set_by;
};

std::string here_text(const Picked& picked) {
  if (picked.line == nullptr) return picked.why.empty() ? "-" : "no: " + picked.why;
  return picked.usable ? "used" : "no: " + picked.why;
}

}  // namespace

std::string wrong_mode() {
  const std::string mode = variable("SWITCHBACK_TUNE");
  if (mode.empty()) return {};
  try {
    (void)parse_tune_mode(mode);
    return {};
  } catch (const Error& error) {
    return fmt::format("{}; no tuner can be opened in this mode", error.what());
  }
}

int cache_path(const CacheOptions& options) {
  const CacheView view(options);
  const std::string wrong = wrong_mode();
  if (!wrong.empty()) StatusLine(false).warning(wrong);
  const TunerState& tuner = view.tuner();
  const auto set_by = [](const char* name, const char* otherwise) {
    return variable(name).empty() ? std::string(otherwise) : std::string(name);
  };
  std::string system_state = state_of(tuner.system_directory);
  if (system_state == "directory" && tuner.system_files.empty())
    system_state = "directory without a list";
  const std::string system_by = set_by("SWITCHBACK_TUNE_SYSTEM", "the library's default");
  std::vector<Place> places = {
      {"cache", tuner.cache_directory, cache_set_by(options)},
      {"file of this machine", tuner.cache_file, "the machine"},
      {"recorded misses", tuner.record_file, set_by("SWITCHBACK_TUNE_RECORD", "the cache")},
      {"system list", tuner.system_directory, system_by}};
  for (const fs::path& file : tuner.system_files)
    if (file != tuner.system_directory)
      places.push_back({"file of the system list", file, system_by});
  constexpr const char* names[] = {"SWITCHBACK_TUNE",        "SWITCHBACK_TUNE_CACHE",
                                   "SWITCHBACK_TUNE_SYSTEM", "SWITCHBACK_TUNE_RECORD",
                                   "XDG_CACHE_HOME",         "HOME"};
  const std::string machine = autotune::describe(tuner.machine);
  if (options.json) {
    ordered_json json;
    json["type"] = "path";
    json["machine"] = machine;
    for (const Place& place : places) {
      std::error_code error;
      const bool is_file = fs::is_regular_file(place.path, error);
      ordered_json entry = {{"what", place.name},
                            {"path", place.path.string()},
                            {"exists", fs::exists(place.path, error)},
                            {"set_by", place.set_by}};
      if (is_file) entry["bytes"] = fs::file_size(place.path, error);
      json["places"].push_back(std::move(entry));
    }
    for (const char* name : names)
      json["variables"][name] = variable(name);
    if (!wrong.empty()) json["wrong"] = wrong;
    print_json(json);
    return exit_codes::ok;
  }
  Table table({"what", "where", "state", "set by"}, {"where", "state", "set by"});
  for (const Place& place : places)
    table.add({place.name, place.path.string(),
               place.path == tuner.system_directory ? system_state : state_of(place.path),
               place.set_by});
  fmt::print("This machine: {}\n\n{}\n", machine, table.text_for(stdout));
  Table variables({"variable", "value"}, {"value"});
  for (const char* name : names)
    variables.add({name, variable(name).empty() ? "not set"
                         : !wrong.empty() && name == names[0]
                             ? variable(name) + " (unknown; use off, read, record, tune or require)"
                             : variable(name)});
  fmt::print("{}", variables.text_for(stdout));
  return exit_codes::ok;
}

int cache_list(const CacheOptions& options, const CacheListOptions& what) {
  const CacheView view(options);
  StatusLine out(false);
  const std::vector<CacheFile> files = view.read(what.all);
  std::vector<std::string> columns = {"key",    "problem", "winner", "ms",  "speed-up",
                                      "effort", "date",    "origin", "here"};
  if (what.all) columns.insert(columns.begin() + 2, {"machine", "measured on"});
  Table table(columns,
              {"problem", "machine", "measured on", "winner", "effort", "date", "origin", "here"});
  std::int64_t keys = 0;
  std::int64_t shown = 0;
  std::int64_t doubtful = 0;
  Products products;
  for (const KeyGroup& group : group_keys(files)) {
    // The system list of tuned configurations has entries for many kinds of machines.
    const bool here =
        !group.cache.empty() || !group.parts || group.parts->machine == view.tuner().machine;
    if (!what.all && !here) continue;
    ++keys;
    const Picked picked = pick(group, view);
    const std::string problem = describe(group);
    const std::optional<ConfigOp> op =
        group.parts ? std::optional(group.parts->query.op) : std::nullopt;
    const std::string winner =
        picked.line == nullptr ? "(no winner)" : words_of(picked.line->entry.winner->candidate, op);
    if (!what.filter.empty() && problem.find(what.filter) == std::string::npos &&
        winner.find(what.filter) == std::string::npos)
      continue;
    ++shown;
    if (picked.line != nullptr) ++products[picked.line->entry.env.product];
    doubtful += picked.line != nullptr && autotune::in_doubt(*picked.line->entry.winner) ? 1 : 0;
    const std::string machine = group.parts ? autotune::describe(group.parts->machine) : "?";
    if (options.json) {
      ordered_json json;
      json["type"] = "entry";
      json["key"] = name_of(group.key);
      if (group.parts) json["problem"] = problem;
      if (!group.parts) json["unreadable"] = group.why;
      json["machine"] = machine;
      if (picked.line != nullptr) {
        json["origin"] = tune_origin_name(picked.origin);
        json["winner"] = to_json(*picked.line);
      }
      json["usable"] = picked.usable;
      if (!picked.usable) json["why"] = picked.why;
      print_json(json);
      continue;
    }
    std::vector<std::string> row = {name_of(group.key), problem};
    if (what.all) {
      row.push_back(machine);
      row.push_back(picked.line == nullptr ? "-" : picked.line->entry.env.product);
    }
    row.push_back(winner);
    if (picked.line == nullptr) {
      row.insert(row.end(), {"-", "-", "-", "-", "-"});
    } else {
      const autotune::Winner& winning = *picked.line->entry.winner;
      row.insert(row.end(), {number(winning.stats.median_ms), speedup_text(winning),
                             std::string(autotune::effort_name(winning.effort)),
                             date_of(winning.time), std::string(tune_origin_name(picked.origin))});
    }
    row.push_back(here_text(picked));
    table.add(std::move(row));
  }
  std::int64_t skipped = 0;
  bool unreadable = false;
  for (const CacheFile& file : files) {
    unreadable = unreadable || !file.problem.empty();
    skipped += warn_of_skipped(file, out);
    if (!options.json) continue;
    for (const autotune::Warning& warning : file.skipped)
      print_json(to_json(warning, "skipped"));
    for (const autotune::Warning& warning : file.newer)
      print_json(to_json(warning, "newer"));
  }
  const std::string where =
      what.all ? view.tuner().cache_directory.string() : view.tuner().cache_file.string();
  if (options.json) {
    print_json({{"type", "summary"},
                {"machine", autotune::describe(view.tuner().machine)},
                {"cache", where},
                {"keys", keys},
                {"shown", shown},
                {"in_doubt", doubtful},
                {"skipped", skipped}});
  } else if (keys == 0) {
    fmt::print("The cache is still empty ({}); 'switchback-bench tune' fills it.\n", where);
  } else {
    if (!table.empty()) fmt::print("{}\n", table.text_for(stdout));
    fmt::print("{} {}{} in {}\n", keys, keys == 1 ? "key" : "keys",
               shown == keys ? "" : fmt::format(", {} of them shown,", shown), where);
    if (!products.empty()) fmt::print("Measured on: {}\n", printable(text_of(products)));
    if (doubtful > 0)
      fmt::print(
          "{} of these keys {} in doubt: other programs disturbed the measurement. The default "
          "configuration runs until 'switchback-bench tune' has measured again.\n",
          doubtful, doubtful == 1 ? "is" : "are");
  }
  if (!options.json && skipped > 0)
    fmt::print("{} {} skipped\n", skipped, skipped == 1 ? "line was" : "lines were");
  return unreadable ? exit_codes::failed : exit_codes::ok;
}

}  // namespace switchback::bench
