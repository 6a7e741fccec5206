// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Added;
using autotune::Entry;

namespace {

// Reads cache files, and all files of cache directories. Warns of lines that are skipped. Throws an
// Error that names the argument if a file or a directory cannot be read.
std::vector<CacheFile> read_inputs(const std::vector<std::string>& names, StatusLine& out) {
  std::vector<CacheFile> files;
  for (const std::string& name : names) {
    std::error_code error;
    const bool is_directory = fs::is_directory(name, error);
    const std::vector<fs::path> paths =
        is_directory ? files_of_cache(name) : std::vector<fs::path>{name};
    core::require(!paths.empty(), "FILE {}: the directory has no cache files (v1/*.jsonl)", name);
    for (const fs::path& path : paths) {
      const CacheFile& file = files.emplace_back(read_cache_file(path, TuneOrigin::exact, false));
      if (!file.exists)
        core::fail(Status::io_error, "FILE {}: the file does not exist", path.string());
      if (!file.problem.empty())
        core::fail(Status::io_error, "FILE {}: {}", path.string(), file.problem);
      warn_of_skipped(file, out);
      if (file.lines > 0 && file.entries.empty() && file.newer.empty())
        out.warning(fmt::format("{}: it has no entries", path.string()));
    }
  }
  return files;
}

// The cache entries to import for one kind of machine.
struct Incoming {
  std::string machine;  ///< as text
  Products products;    ///< the processors on which the winners were measured
  std::vector<Entry> entries;
};

// How many of the imported winners this Context (device, threads, instruction set) uses.
struct Use {
  std::int64_t winners = 0;
  std::int64_t used = 0;
  std::map<std::string, std::int64_t> not_used;  ///< the number of unused winners by reason
};

Use use_of(const CacheOptions& options, const std::map<std::string, Incoming>& machines) {
  Use use;
  const CacheView view(options);
  const std::vector<CacheFile> files = view.read(true);
  std::map<std::string_view, std::pair<const KeyGroup*, Picked>> known;
  const std::vector<KeyGroup> groups = group_keys(files);
  for (const KeyGroup& group : groups)
    known[group.key.json] = {&group, pick(group, view)};
  std::set<std::string> seen;
  for (const auto& [name, incoming] : machines)
    for (const Entry& entry : incoming.entries) {
      if (!entry.winner || !seen.insert(autotune::to_line(entry)).second) continue;
      ++use.winners;
      const auto& [group, picked] = known.at(entry.key.json);
      if (picked.usable && picked.line->entry.winner == entry.winner)
        ++use.used;
      else
        ++use.not_used[why_not(entry, *group, view)];
    }
  return use;
}

void print(const Use& use) {
  if (use.winners == 0) return;
  fmt::print("{} of the {} winners {} used here.\n", use.used, use.winners,
             use.used == 1 ? "is" : "are");
  Table table({"why the others are not", "winners"});
  for (const auto& [why, winners] : use.not_used)
    table.add({why, std::to_string(winners)});
  if (!table.empty()) fmt::print("{}", table.text_for(stdout));
}

}  // namespace

int cache_import(const CacheOptions& options, const std::vector<std::string>& in) {
  StatusLine out(false);
  const fs::path directory = cache_directory_of(options);
  std::map<std::string, Incoming> machines;  // by name
  std::int64_t bad = 0, unreadable = 0, misses = 0;
  for (CacheFile& file : read_inputs(in, out)) {
    bad += std::ssize(file.skipped);
    unreadable += std::ssize(file.skipped) + std::ssize(file.newer);
    for (CacheLine& line : file.entries) {
      if (line.entry.is_miss()) {
        ++misses;
        continue;
      }
      std::string why;
      const auto parts = autotune::parse_key(line.entry.key.json, why);
      if (!parts) {
        out.warning(fmt::format("{}: {}", place_of(line), why));
        ++unreadable;
        continue;
      }
      Incoming& incoming = machines[autotune::machine_name(parts->machine)];
      incoming.machine = autotune::describe(parts->machine);
      if (line.entry.winner) ++incoming.products[line.entry.env.product];
      incoming.entries.push_back(std::move(line.entry));
    }
  }
  const int code = bad > 0 ? exit_codes::failed : exit_codes::ok;
  std::map<Added, std::int64_t> sum;
  Table table({"for", "measured on", "added", "known", "other wins", "file"},
              {"measured on", "file"});
  for (const auto& [name, incoming] : machines) {
    const fs::path file = autotune::cache_file(directory, name);
    std::map<Added, std::int64_t> counts;
    for (const Added added : autotune::put_into(file, incoming.entries, patient(out))) {
      ++counts[added];
      ++sum[added];
    }
    table.add({incoming.machine, text_of(incoming.products), std::to_string(counts[Added::added]),
               std::to_string(counts[Added::known]), std::to_string(counts[Added::worse]),
               file.string()});
  }
  const Use use = use_of(options, machines);
  if (options.json) {
    print_json({{"type", "import"},
                {"cache", directory.string()},
                {"added", sum[Added::added]},
                {"known", sum[Added::known]},
                {"other_wins", sum[Added::worse]},
                {"unreadable", unreadable},
                {"misses", misses},
                {"winners", use.winners},
                {"used_here", use.used},
                {"not_used", use.not_used}});
    return code;
  }
  if (!table.empty()) fmt::print("{}\n", table.text_for(stdout));
  fmt::print("{} entries added, {} already there, {} unreadable\n", sum[Added::added],
             sum[Added::known], unreadable);
  if (misses > 0)
    fmt::print("{} misses were skipped; 'switchback-bench tune --recorded' measures them\n",
               misses);
  print(use);
  return code;
}

}  // namespace switchback::bench
