// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "autotune/store/compaction.hpp"
#include "autotune/tune.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Record;
using autotune::RecordType;

namespace {

struct Dropped {
  std::int64_t older = 0;
  std::int64_t stale = 0;
  std::int64_t samples = 0;
  std::int64_t other = 0;  ///< dropped by compaction
  std::uintmax_t bytes_before = 0;
  std::uintmax_t bytes_after = 0;

  [[nodiscard]] std::int64_t all() const noexcept { return older + stale + samples + other; }
};

// "2026-11-21T17:36:23Z", so that text compares as time does.
bool is_time(std::string_view text) noexcept {
  constexpr std::string_view form = "0000-00-00T00:00:00Z";
  return std::equal(text.begin(), text.end(), form.begin(), form.end(), [](char c, char like) {
    return like == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == like;
  });
}

// Marks the records to drop besides those that compaction drops.
class Filter {
 public:
  Filter(const CachePruneOptions& what, const autotune::Environment& here)
      : what_(what), here_(here) {
    if (what.older_than_days > 0)
      oldest_ = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                            fmt::gmtime(std::time(nullptr) - what.older_than_days * 86400));
  }

  [[nodiscard]] std::vector<Record> apply(std::vector<Record> records, Dropped& dropped) const {
    dropped.older = dropped.stale = dropped.samples = 0;
    std::vector<Record> kept;
    for (Record& record : records) {
      // A tombstone applies to other files too.
      const bool old = record.type != RecordType::tombstone && !oldest_.empty() &&
                       is_time(record.time) && record.time < oldest_;
      const bool stale = !old && is_stale(record);
      const bool sample = !old && what_.samples &&
                          (record.type == RecordType::sample || record.type == RecordType::miss);
      dropped.older += old ? 1 : 0;
      dropped.stale += stale ? 1 : 0;
      dropped.samples += sample ? 1 : 0;
      if (!old && !stale && !sample) kept.push_back(std::move(record));
    }
    return kept;
  }

 private:
  // Only what its engine depends on counts: a winner that is still used is not stale.
  [[nodiscard]] bool is_stale(const Record& record) const {
    if (!what_.stale || record.type != RecordType::winner) return false;
    std::string why;
    const auto parts = autotune::parse_key(record.key.json, why);
    return parts ? !autotune::mismatch(parts->query.op, record.candidate.engine, record.env, here_)
                        .empty()
                 : !autotune::same_hard(record.env, here_);
  }

  const CachePruneOptions& what_;
  const autotune::Environment& here_;
  std::string oldest_;
};

Record tombstone_of(const autotune::Key& key, const autotune::Environment& env) {
  Record record;
  record.type = RecordType::tombstone;
  record.key = key;
  record.env = env;
  record.time = autotune::time_now();
  return record;
}

std::string newer_lines_of(const CacheFile& file) {
  std::string text;
  std::int64_t number = 0;
  std::size_t next = 0;
  for (std::size_t at = 0; at < file.text.size() && next < file.newer.size();) {
    const std::size_t end = std::min(file.text.find('\n', at), file.text.size());
    if (++number == file.newer[next].line) {
      text += file.text.substr(at, end - at) + '\n';
      ++next;
    }
    at = end + 1;
  }
  return text;
}

// The tombstone is added to every file that has the key; normally there is only one.
std::vector<fs::path> files_with_key(const fs::path& cache, const std::string& beginning,
                                     autotune::Key& key) {
  std::vector<CacheFile> files;
  for (const fs::path& path : files_of_cache(cache))
    files.push_back(read_cache_file(path));
  const std::vector<KeyGroup> groups = group_keys(files);
  key = find_key(groups, beginning).key;
  std::vector<fs::path> found;
  for (const CacheFile& file : files)
    if (std::any_of(file.records.begin(), file.records.end(),
                    [&](const CacheLine& line) { return line.record.key == key; }))
      found.push_back(file.path);
  return found;
}

Dropped prune(const CacheFile& file, const Filter& filter, const CachePruneOptions& what,
              const std::optional<Record>& tombstone, StatusLine& out) {
  Dropped dropped;
  dropped.bytes_before = file.text.size();
  std::vector<Record> kept = filter.apply(records_of(file), dropped);
  const bool filtered = dropped.all() > 0;
  if (what.dry_run) {
    if (tombstone) kept.push_back(*tombstone);
    const std::string text = lines_of(kept) + newer_lines_of(file);
    const autotune::Compaction compaction = autotune::worth_keeping(text, !what.samples);
    dropped.other = compaction.dropped + static_cast<std::int64_t>(file.skipped.size());
    dropped.bytes_after = compaction.text.size();
    return dropped;
  }
  autotune::Store store(file.path, patient(out));
  if (filtered)
    store.update(
        [&](std::vector<Record> records) { return filter.apply(std::move(records), dropped); });
  if (tombstone) store.append(std::span(&*tombstone, 1));
  dropped.other = store.compact(!what.samples);
  // The filter dropped them while rewriting, before compaction could count them.
  if (filtered) dropped.other += static_cast<std::int64_t>(file.skipped.size());
  std::error_code error;
  dropped.bytes_after = fs::file_size(file.path, error);
  if (error) dropped.bytes_after = dropped.bytes_before;
  return dropped;
}

}  // namespace

int cache_prune(const CacheOptions& options, const CachePruneOptions& what) {
  StatusLine out(false);
  const CacheView view(options);
  const autotune::Environment& here = view.tuner().environment;
  const Filter filter(what, here);
  std::vector<fs::path> paths = {view.tuner().store->file()};
  std::optional<Record> tombstone;
  if (!what.key.empty()) {
    autotune::Key key;
    paths = files_with_key(view.tuner().cache_directory, what.key, key);
    core::require(!paths.empty(), "--key {}: the cache does not have it", what.key);
    tombstone = tombstone_of(key, here);
  }
  for (const fs::path& path : paths) {
    const CacheFile file = read_cache_file(path);
    if (!file.problem.empty()) core::fail(Status::io_error, "{}: {}", path.string(), file.problem);
    warn_of_skipped(file, out);
    if (!file.exists) {
      if (options.json)
        print_json({{"type", "prune"}, {"file", path.string()}, {"dropped", 0}});
      else
        fmt::print("There is nothing in the cache yet ({}); 'switchback-bench tune' fills it.\n",
                   path.string());
      continue;
    }
    const Dropped dropped = prune(file, filter, what, tombstone, out);
    const std::uintmax_t saved =
        dropped.bytes_before - std::min(dropped.bytes_before, dropped.bytes_after);
    if (options.json) {
      nlohmann::ordered_json json = {{"type", "prune"},
                                     {"file", path.string()},
                                     {"dry_run", what.dry_run},
                                     {"dropped", dropped.all()},
                                     {"older", dropped.older},
                                     {"stale", dropped.stale},
                                     {"samples", dropped.samples},
                                     {"other", dropped.other},
                                     {"bytes_before", dropped.bytes_before},
                                     {"bytes_after", dropped.bytes_after}};
      if (tombstone) json["forgotten"] = tombstone->key.sha;
      print_json(json);
      continue;
    }
    fmt::print("{}: {} lines {}, {}", path.string(), dropped.all(),
               what.dry_run ? "would be dropped" : "dropped",
               format_bytes(static_cast<double>(saved)));
    fmt::print(" {}\n", what.dry_run ? "would be saved" : "saved");
    Table table({"what", "lines"});
    const auto add = [&](const char* name, std::int64_t lines) {
      if (lines > 0) table.add({name, std::to_string(lines)});
    };
    add("older", dropped.older);
    add("of other libraries or kernels", dropped.stale);
    add("samples", dropped.samples);
    add("superseded, forgotten, repeated or unreadable", dropped.other);
    fmt::print("{}", table.empty() ? "" : table.text_for(stdout));
    if (tombstone)
      fmt::print("{} {}: {}\n", what.dry_run ? "would forget" : "forgot",
                 short_hash(tombstone->key), tombstone->key.json);
  }
  return exit_codes::ok;
}

}  // namespace switchback::bench
