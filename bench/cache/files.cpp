// SPDX-License-Identifier: Apache-2.0
#include "bench/cache/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/store/file.hpp"
#include "bench/cli/cli.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Entry;

namespace {

constexpr std::size_t most_shown = 100;

TunerOptions tuner_options(const CacheOptions& options, bool near_shapes, bool strict) {
  TunerOptions tuner;
  // `cache` shows the tuning cache even if the environment disables look-ups.
  tuner.mode = "read";
  tuner.cache_directory = options.cache;
  tuner.near_shapes = near_shapes;
  tuner.strict = strict;
  return tuner;
}

}  // namespace

std::string place_of(const CacheLine& line) {
  return fmt::format("{}:{}", line.file.string(), line.number);
}

CacheFile read_cache_file(const fs::path& path, TuneOrigin origin, bool trusted) {
  CacheFile file;
  file.path = path;
  file.origin = origin;
  std::string text;
  switch (trusted ? autotune::read_trusted_file(path, text, file.problem)
                  : autotune::read_file(path, text, file.problem)) {
    case autotune::ReadResult::missing:
      return file;
    case autotune::ReadResult::failed:
      file.exists = true;
      return file;
    case autotune::ReadResult::ok:
      file.exists = true;
      break;
  }
  autotune::for_each_line(text, [&](std::int64_t number, std::string_view line) {
    ++file.lines;
    std::string why;
    bool newer = false;
    if (std::optional<Entry> entry = autotune::from_line(line, why, &newer))
      file.entries.push_back({std::move(*entry), path, number});
    else
      (newer ? file.newer : file.skipped).push_back({path, number, std::move(why)});
  });
  return file;
}

std::vector<fs::path> files_of_cache(const fs::path& cache) {
  const fs::path folder = autotune::cache_file(cache, "any").parent_path();
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".jsonl") files.push_back(it->path());
  if (error && error != std::errc::no_such_file_or_directory)
    autotune::fail_io(folder, "the directory cannot be read", error.value());
  std::sort(files.begin(), files.end());
  return files;
}

fs::path cache_directory_of(const CacheOptions& options) {
  fs::path directory =
      options.cache.empty() ? autotune::default_cache_directory() : fs::path(options.cache);
  core::require(!directory.empty(),
                "--cache: the cache directory is unknown; give one, or set SWITCHBACK_TUNE_CACHE, "
                "XDG_CACHE_HOME or HOME");
  return directory;
}

autotune::LockWait patient(StatusLine& out) {
  return {std::chrono::seconds(60), [&out](const std::string& what) { out.warning(what); }, {}};
}

void warn_of_lines(const std::vector<autotune::Warning>& lines, std::string_view more,
                   StatusLine& out) {
  for (std::size_t i = 0; i < std::min(lines.size(), most_shown); ++i)
    out.warning(autotune::describe(lines[i]));
  if (lines.size() > most_shown)
    out.warning(fmt::format("{}: {} more lines {}", lines.front().file.string(),
                            lines.size() - most_shown, more));
}

std::int64_t warn_of_skipped(const CacheFile& file, StatusLine& out) {
  if (!file.problem.empty()) out.warning(file.path.string() + ": " + file.problem);
  std::size_t shown = 0;
  for (const auto* warnings : {&file.skipped, &file.newer})
    for (const autotune::Warning& warning : *warnings)
      if (++shown <= most_shown) out.warning(autotune::describe(warning));
  if (shown > most_shown)
    out.warning(
        fmt::format("{}: {} more lines were skipped", file.path.string(), shown - most_shown));
  return static_cast<std::int64_t>(shown);
}

CacheView::CacheView(const CacheOptions& options, bool near_shapes, bool strict)
    : context(options.context),
      tuner_(Tuner::open(context, tuner_options(options, near_shapes, strict))) {
  // Throws an Error with the reason if the cache directory is not known.
  (void)cache_directory_of(options);
}

std::vector<CacheFile> CacheView::read(bool all) const {
  std::vector<CacheFile> files;
  if (all) {
    for (const fs::path& path : files_of_cache(tuner().cache_directory))
      files.push_back(read_cache_file(path));
  } else {
    files.push_back(read_cache_file(tuner().cache_file));
  }
  for (const fs::path& path : tuner().system_files)
    files.push_back(read_cache_file(path, TuneOrigin::system_list));
  return files;
}

std::string why_foreign(const autotune::KeyParts& parts, const TunerState& tuner,
                        const Context& context) {
  if (parts.machine != tuner.machine)
    return fmt::format("for another machine: {}", autotune::describe(parts.machine));
  if (parts.policy != tuner.policy) return "measured with another timing policy than look-ups use";
  if (autotune::matches(parts.query, context.state())) return {};
  const ConfigOrigin& origin = parts.query.origin;
  std::vector<std::string> differences;
  if (origin.threads != context.threads())
    differences.push_back(fmt::format("{} thread{} (--threads {})", origin.threads,
                                      origin.threads == 1 ? "" : "s", origin.threads));
  if (const std::string_view isa = core::isa_name(origin.isa);
      autotune::tunable_of(parts.query.op).depends_on_isa && isa != context.isa())
    differences.push_back(fmt::format("instruction set {} (--isa {})", isa, isa));
  return fmt::format("for another Context: {}", fmt::join(differences, ", "));
}

std::string CacheView::foreign(const KeyGroup& group) const {
  return group.parts ? why_foreign(*group.parts, tuner(), context) : group.why;
}

bool is_misplaced(const CacheLine& line, const autotune::KeyParts& parts) {
  return line.file.stem() != autotune::machine_name(parts.machine);
}

std::vector<KeyGroup> group_keys(const std::vector<CacheFile>& files) {
  std::vector<KeyGroup> groups;
  std::map<std::string_view, std::size_t> index;
  for (const CacheFile& file : files)
    for (const CacheLine& line : file.entries) {
      if (line.entry.is_miss()) continue;
      std::string why;
      const std::optional<autotune::KeyParts> parts = autotune::parse_key(line.entry.key.json, why);
      const bool cached = file.origin == TuneOrigin::exact;
      if (cached && parts && is_misplaced(line, *parts)) continue;
      const auto [known, is_new] = index.try_emplace(line.entry.key.json, groups.size());
      if (is_new) groups.push_back({line.entry.key, parts, why, {}, {}});
      KeyGroup& group = groups[known->second];
      (cached ? group.cache : group.system_list).push_back(&line);
    }
  return groups;
}

std::string name_of(const autotune::Key& key) {
  std::uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char c : key.json)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return fmt::format("{:016x}", hash);
}

const KeyGroup& find_key(const std::vector<KeyGroup>& groups, std::string_view beginning) {
  constexpr std::size_t least_digits = 4, most_digits = 16;
  const bool digits = beginning.size() >= least_digits && beginning.size() <= most_digits &&
                      beginning.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  core::require(digits,
                "KEY '{}': it must be {} to {} hexadecimal digits, the beginning of a key's name "
                "in 'switchback-bench cache list'",
                beginning, least_digits, most_digits);
  std::vector<const KeyGroup*> found;
  for (const KeyGroup& group : groups)
    if (name_of(group.key).starts_with(beginning)) found.push_back(&group);
  core::require(
      !found.empty(),
      "KEY '{}': no key begins with it; 'switchback-bench cache list --all' shows all {} keys",
      beginning, groups.size());
  if (found.size() == 1) return *found.front();
  std::string matches;
  constexpr std::size_t most_matches = 20;
  for (std::size_t i = 0; i < found.size() && i < most_matches; ++i)
    matches +=
        fmt::format("{}{} ({})", i == 0 ? "" : ", ", name_of(found[i]->key), describe(*found[i]));
  if (found.size() > most_matches)
    matches += fmt::format(" and {} more", found.size() - most_matches);
  core::fail(Status::invalid_argument, "KEY '{}': {} keys begin with it: {}; give more digits",
             beginning, found.size(), matches);
}

std::string describe(const KeyGroup& group) {
  return group.parts ? autotune::describe(group.parts->query)
                     : fmt::format("cannot be read here: {}", group.why);
}

const CacheLine* best_line(const std::vector<const CacheLine*>& lines,
                           const std::function<bool(const Entry&)>& usable) {
  std::vector<Entry> entries;
  entries.reserve(lines.size());
  for (const CacheLine* line : lines)
    entries.push_back(line->entry);
  const Entry* best = autotune::best_of(entries, usable);
  return best == nullptr ? nullptr : lines[static_cast<std::size_t>(best - entries.data())];
}

Picked pick(const KeyGroup& group, const CacheView& view) {
  Picked picked;
  picked.why = view.foreign(group);
  std::string refused;
  if (picked.why.empty()) {
    const auto usable = [&](const Entry& entry) {
      std::optional<ConfigChoice> choice;
      const std::vector<autotune::Verdict> verdicts =
          view.tuner().judge(entry, group.parts->query, view.context.state(), choice);
      if (!choice) refused = verdicts.back().why;
      return choice.has_value();
    };
    for (const auto& [lines, origin] : {std::pair(&group.cache, TuneOrigin::exact),
                                        std::pair(&group.system_list, TuneOrigin::system_list)})
      if (const CacheLine* line = best_line(*lines, usable)) return {line, origin, true, {}};
    picked.why = refused;
  }
  const auto any = [](const Entry&) { return true; };
  for (const auto& [lines, origin] : {std::pair(&group.cache, TuneOrigin::exact),
                                      std::pair(&group.system_list, TuneOrigin::system_list)}) {
    picked.origin = origin;
    picked.line = best_line(*lines, any);
    if (picked.line != nullptr) break;
  }
  return picked;
}

std::string why_not(const Entry& entry, const KeyGroup& group, const CacheView& view) {
  if (std::string foreign = view.foreign(group); !foreign.empty()) return foreign;
  std::optional<ConfigChoice> choice;
  const std::vector<autotune::Verdict> verdicts =
      view.tuner().judge(entry, group.parts->query, view.context.state(), choice);
  return choice ? "another winner takes precedence" : verdicts.back().why;
}

}  // namespace switchback::bench
