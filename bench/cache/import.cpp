// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

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

// Of two caches, either may have forgotten a key. Times decide which records are older than the
// last tombstone of their key in either cache: an entry measured after it is news, whichever cache
// has it. Gives each cache the tombstones of the other that merge() needs.
class Tombstones {
 public:
  void add(const std::vector<Record>& records) {
    for (const Record& record : records) {
      if (record.type != RecordType::tombstone) continue;
      const auto [entry, is_new] = latest_.try_emplace(record.key.json, record);
      if (!is_new && goes_before(record, entry->second)) entry->second = record;
    }
  }

  // Returns how many records are left out. With `keep_all` none that its own cache would keep.
  std::int64_t apply(std::vector<Record>& records, bool keep_all) const {
    std::vector<Record> kept;
    std::map<std::string, bool> started;  // keys whose tombstone is in `kept`
    std::int64_t dropped = 0;
    // Records before a cache's own tombstone are gone already.
    std::map<std::string, std::size_t> own;
    for (std::size_t i = 0; i < records.size(); ++i)
      if (records[i].type == RecordType::tombstone) own[records[i].key.json] = i;
    for (std::size_t i = 0; i < records.size(); ++i) {
      Record& record = records[i];
      const auto tombstone = latest_.find(record.key.json);
      if (tombstone == latest_.end()) {
        kept.push_back(std::move(record));
        continue;
      }
      const auto buried = own.find(record.key.json);
      if (buried != own.end() && i < buried->second) continue;
      if (!started[record.key.json]) kept.push_back(tombstone->second);
      started[tombstone->first] = true;
      if (record.type == RecordType::tombstone) continue;
      const bool knows = buried != own.end() && records[buried->second] == tombstone->second;
      if (keep_all || knows || autotune::is_later(record.time, tombstone->second.time))
        kept.push_back(std::move(record));
      else
        ++dropped;
    }
    records = std::move(kept);
    return dropped;
  }

 private:
  static bool goes_before(const Record& a, const Record& b) {
    return a.time != b.time ? autotune::is_later(a.time, b.time)
                            : autotune::to_line(a) > autotune::to_line(b);
  }
  std::map<std::string, Record> latest_;
};

// The records to import for one machine.
struct Incoming {
  std::string machine;                      ///< in words
  Products products;                        ///< of the winners
  std::vector<std::vector<Record>> caches;  ///< of each file that has any
};

// The result of importing, for one machine or for all.
struct Imported {
  std::vector<Record> records;  ///< the file's new contents
  std::vector<Conflict> conflicts;
  std::int64_t added = 0;
  std::int64_t known = 0;
  std::int64_t worse = 0;      ///< another winner is preferred
  std::int64_t forgotten = 0;  ///< the key was forgotten since
};

Imported import_into(std::vector<Record> existing, std::vector<std::vector<Record>> incoming,
                     bool forgotten) {
  std::set<std::string> before;
  for (const Record& record : existing)
    before.insert(autotune::to_line(record));
  std::set<std::string> offered;
  for (const std::vector<Record>& cache : incoming)
    for (const Record& record : cache)
      offered.insert(autotune::to_line(record));

  Imported result;
  Tombstones tombstones;
  tombstones.add(existing);
  for (const std::vector<Record>& cache : incoming)
    tombstones.add(cache);
  tombstones.apply(existing, false);
  std::vector<std::vector<Record>> caches;
  caches.push_back(std::move(existing));
  for (std::vector<Record>& cache : incoming) {
    result.forgotten += tombstones.apply(cache, forgotten);
    caches.push_back(std::move(cache));
  }
  result.records = autotune::merge(caches, result.conflicts);
  for (const Record& record : result.records) {
    const std::string line = autotune::to_line(record);
    if (before.contains(line))
      result.known += offered.contains(line) ? 1 : 0;
    else
      ++result.added;
  }
  const auto all = static_cast<std::int64_t>(offered.size());
  result.worse = std::max<std::int64_t>(all - result.added - result.known - result.forgotten, 0);
  return result;
}

// What becomes of the winners of an import in this Context.
struct Use {
  std::int64_t winners = 0;
  std::int64_t used = 0;
  std::map<std::string, std::int64_t> not_used;  ///< by reason
};

Use use_of(const CacheOptions& options, const std::set<std::string>& imported) {
  Use use;
  const CacheView view(options);
  const std::vector<CacheFile> files = view.read(true);
  for (const KeyGroup& group : group_keys(files)) {
    if (group.misplaced) continue;
    const Picked picked = pick(group, view);
    std::set<std::string> seen;
    for (const CacheLine* line : group.cache) {
      std::string text = autotune::to_line(line->record);
      if (line->record.type != RecordType::winner || !imported.contains(text) ||
          !seen.insert(std::move(text)).second)
        continue;
      ++use.winners;
      if (picked.usable && picked.line->record == line->record)
        ++use.used;
      else
        ++use.not_used[why_not(*line, group, view)];
    }
  }
  return use;
}

void print(const Use& use) {
  if (use.winners == 0) return;
  fmt::print("{} of the {} winners {} used here.\n", use.used, use.winners,
             use.used == 1 ? "is" : "are");
  Table table({"why others are not", "winners"});
  for (const auto& [why, winners] : use.not_used)
    table.add({why, std::to_string(winners)});
  if (!table.empty()) fmt::print("{}", table.text_for(stdout));
}

}  // namespace

int cache_import(const CacheOptions& options, const CacheImportOptions& what) {
  StatusLine out(false);
  const fs::path directory = cache_directory_of(options);
  const std::vector<CacheFile> files = read_inputs("FILE", what.in, out);
  // For each machine, the records that each file has of it.
  std::map<std::string, Incoming> machines;
  std::int64_t unreadable = 0;
  std::int64_t misses = 0;
  std::set<std::string> winners;
  for (const CacheFile& file : files) {
    unreadable += static_cast<std::int64_t>(file.skipped.size() + file.newer.size());
    std::map<std::string, std::size_t> own;  // which of a machine's vectors is this file's
    for (const CacheLine& line : file.records) {
      if (line.record.type == RecordType::miss) {
        ++misses;
        continue;
      }
      std::string why;
      const auto parts = autotune::parse_key(line.record.key.json, why);
      if (!parts) {
        out.warning(fmt::format("{}: {}", place_of(line), why));
        ++unreadable;
        continue;
      }
      if (line.record.type == RecordType::winner) winners.insert(autotune::to_line(line.record));
      const std::string folder = autotune::environment_name(parts->machine);
      Incoming& incoming = machines[folder];
      incoming.machine = autotune::describe(parts->machine);
      if (line.record.type == RecordType::winner) ++incoming.products[line.record.env.product];
      const auto [entry, is_new] = own.try_emplace(folder, incoming.caches.size());
      if (is_new) incoming.caches.emplace_back();
      incoming.caches[entry->second].push_back(line.record);
    }
  }
  const int code = report_bad_inputs(files, out) > 0 ? exit_codes::failed : exit_codes::ok;
  std::vector<Conflict> conflicts;
  Imported sum;
  Table table(
      {"for", "measured on", "added", "known", "other wins", "forgotten", "conflicts", "file"},
      {"measured on", "file"});
  for (const auto& each : machines) {
    const Incoming& incoming = each.second;
    autotune::Store store(autotune::cache_file(directory, each.first), patient(out));
    const CacheFile current = read_cache_file(store.file());
    if (!current.problem.empty())
      core::fail(Status::io_error, "{}: {}", store.file().string(), current.problem);
    Imported done = import_into(records_of(current), incoming.caches, what.forgotten);
    if (done.added > 0) {
      if (!current.skipped.empty())
        out.warning(fmt::format("{}: {} lines of it that cannot be read were dropped",
                                store.file().string(), current.skipped.size()));
      // Other processes may have appended meanwhile.
      store.update([&](std::vector<Record> now) {
        done = import_into(std::move(now), incoming.caches, what.forgotten);
        return done.records;
      });
    }
    sum.added += done.added;
    sum.known += done.known;
    sum.worse += done.worse;
    sum.forgotten += done.forgotten;
    conflicts.insert(conflicts.end(), done.conflicts.begin(), done.conflicts.end());
    table.add({incoming.machine, text_of(incoming.products), std::to_string(done.added),
               std::to_string(done.known), std::to_string(done.worse),
               std::to_string(done.forgotten), std::to_string(done.conflicts.size()),
               store.file().string()});
  }
  report_conflicts(options, conflicts);
  const Use use = use_of(options, winners);
  if (options.json) {
    print_json({{"type", "import"},
                {"cache", directory.string()},
                {"added", sum.added},
                {"known", sum.known},
                {"other_wins", sum.worse},
                {"forgotten", sum.forgotten},
                {"conflicts", conflicts.size()},
                {"unreadable", unreadable},
                {"misses", misses},
                {"winners", use.winners},
                {"used_here", use.used},
                {"not_used", use.not_used}});
    return code;
  }
  if (!table.empty()) fmt::print("{}\n", table.text_for(stdout));
  fmt::print("{} records added, {} already there, {} conflicts, {} unreadable\n", sum.added,
             sum.known, conflicts.size(), unreadable);
  if (sum.forgotten > 0)
    fmt::print(
        "{} were left out: their keys were forgotten here since ('cache prune --key'); "
        "--forgotten takes them\n",
        sum.forgotten);
  if (misses > 0)
    fmt::print("{} misses were left out: they are for 'switchback-bench tune --recorded'\n",
               misses);
  print(use);
  return code;
}

}  // namespace switchback::bench
