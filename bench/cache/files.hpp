// SPDX-License-Identifier: Apache-2.0
// Bench: reads the files of tuning caches line by line, so that each entry knows its file and line.
// Also declares the texts and JSON of entries that all subcommands of `cache` print.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tuner_state.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cli/terminal.hpp"

namespace switchback::bench {

struct CacheLine {
  autotune::Entry entry;
  std::filesystem::path file;
  std::int64_t number = 0;
};
/// The file name and the line number of a cache line: "machine.jsonl:17".
std::string place_of(const CacheLine& line);

struct CacheFile {
  std::filesystem::path path;
  /// `exact` for a cache file; `system_list` for the system list.
  TuneOrigin origin = TuneOrigin::exact;
  bool exists = false;
  std::string problem;     ///< why the file cannot be read; empty if it was read
  std::int64_t lines = 0;  ///< the number of lines that are not blank
  std::vector<CacheLine> entries;
  std::vector<autotune::Warning> skipped;  ///< the lines that are not valid entries
  std::vector<autotune::Warning> newer;    ///< the lines that a later version of the schema wrote
};
/// Reads one file of a tuning cache. Never throws because of the contents of the file. `trusted`:
/// the file belongs to a cache and must pass the library's checks of its owner; otherwise the user
/// named it.
CacheFile read_cache_file(const std::filesystem::path& path, TuneOrigin origin = TuneOrigin::exact,
                          bool trusted = true);
/// Paths of the files of all machines in a cache directory, sorted by name. Throws Error(io_error)
/// if the directory exists but cannot be read.
std::vector<std::filesystem::path> files_of_cache(const std::filesystem::path& cache);
/// Why the value of SWITCHBACK_TUNE in the environment is invalid; empty if it is valid or not set.
std::string wrong_mode();
/// How commands wait for the lock of a cache: up to 60 seconds, with a message.
autotune::LockWait patient(StatusLine& out);
/// Prints a warning for each of these lines of a cache file, but at most a hundred. If there are
/// more, one message counts the rest; `more` ends that message.
void warn_of_lines(const std::vector<autotune::Warning>& lines, std::string_view more,
                   StatusLine& out);
/// The cache directory that the options name, or else the default one. Throws
/// Error(invalid_argument) if neither exists.
std::filesystem::path cache_directory_of(const CacheOptions& options);
/// Warns of the lines of a cache file that could not be read, at most a hundred. Returns the number
/// of all such lines.
std::int64_t warn_of_skipped(const CacheFile& file, StatusLine& out);

/// Why this Context (device, threads, instruction set) does not look up a problem whose key has
/// these parts; empty if it does.
std::string why_foreign(const autotune::KeyParts& parts, const TunerState& tuner,
                        const Context& context);

/// The tuning cache as a Context (device, threads, instruction set) of this machine sees it.
struct CacheView {
  explicit CacheView(const CacheOptions& options, bool near_shapes = false, bool strict = false);

  [[nodiscard]] const TunerState& tuner() const noexcept { return tuner_->state(); }
  /// Reads this machine's cache file (with `all`, those of all machines), then the system list.
  [[nodiscard]] std::vector<CacheFile> read(bool all) const;
  /// Why this Context (device, threads, instruction set) does not look up a key; empty if it does.
  [[nodiscard]] std::string foreign(const struct KeyGroup& group) const;

  Context context;

 private:
  std::shared_ptr<Tuner> tuner_;
};

/// All entries of one key (a problem on a kind of machine) except misses. Points into the
/// CacheFiles.
struct KeyGroup {
  autotune::Key key;
  std::optional<autotune::KeyParts> parts;
  std::string why;  ///< if `parts` is empty: which part of the key this program does not know
  std::vector<const CacheLine*> cache;
  std::vector<const CacheLine*> system_list;
};
/// Groups the entries of these files by key, in the order of appearance. Entries that are in
/// another machine's file (is_misplaced()) are left out.
std::vector<KeyGroup> group_keys(const std::vector<CacheFile>& files);
/// Whether an entry is in the cache file of another machine, where look-ups do not find it.
bool is_misplaced(const CacheLine& line, const autotune::KeyParts& parts);
/// The name that commands use for a key: 16 hexadecimal digits, a hash of its text.
std::string name_of(const autotune::Key& key);
/// The group whose key name begins with this text. If none or several match, throws
/// Error(invalid_argument) that lists the matches.
const KeyGroup& find_key(const std::vector<KeyGroup>& groups, std::string_view beginning);
/// The problem of a group as text. If its key cannot be read, the text says why.
std::string describe(const KeyGroup& group);

/// The best of several cache lines, by the rules of a look-up.
const CacheLine* best_line(const std::vector<const CacheLine*>& lines,
                           const std::function<bool(const autotune::Entry&)>& usable);

/// The winner (fastest configuration) of a key that a look-up of this Context finds. If a look-up
/// finds none, it is the best winner that exists.
struct Picked {
  const CacheLine* line = nullptr;  ///< the line that has the winner; null: there is no winner
  TuneOrigin origin = TuneOrigin::exact;
  bool usable = false;
  std::string why;  ///< why this Context cannot use the winner
};
Picked pick(const KeyGroup& group, const CacheView& view);
/// Why a look-up of this Context (device, threads, instruction set) does not choose the winner of
/// this entry.
std::string why_not(const autotune::Entry& entry, const KeyGroup& group, const CacheView& view);

/// The date of an ISO 8601 time: "2026-11-21".
std::string date_of(std::string_view time);
/// The speed-up of a winner over the default configuration; 0 if it is not known.
double speedup_of(const autotune::Winner& winner);
/// The speed-up over the default as text: "1.32x", or "-" if it is not known.
std::string speedup_text(const autotune::Winner& winner);
/// How many winners were measured on each processor product, such as "AMD EPYC 9R45".
using Products = std::map<std::string, std::int64_t>;
/// The products that winners were measured on: "AMD EPYC 9R45"; if there are several, with the
/// number of winners: "AMD EPYC 9R45 (12), AMD EPYC 7763 (4)".
std::string text_of(const Products& products);
/// A configuration as text: its engine and the attributes that are not zero. For a problem of mode
/// auto: the modes, the fastest first.
std::string words_of(const autotune::CandidateText& candidate, std::optional<ConfigOp> op);
/// The configuration that runs if the cache has none for the problem.
ConfigChoice default_choice(const ConfigQuery& query, const Context& context);
/// The configuration of default_choice() in the text form that caches store.
autotune::CandidateText default_of(const ConfigQuery& query, const Context& context);

nlohmann::ordered_json to_json(const autotune::CandidateText& candidate);
nlohmann::ordered_json to_json(const autotune::Environment& env);
/// A cache line as JSON without its key: winner, wrong candidates, environment, file and line
/// number.
nlohmann::ordered_json to_json(const CacheLine& line);
nlohmann::ordered_json to_json(const autotune::Warning& warning, std::string_view type);
/// Prints a JSON object as one line to stdout.
void print_json(const nlohmann::ordered_json& object);

}  // namespace switchback::bench
