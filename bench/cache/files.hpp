// SPDX-License-Identifier: Apache-2.0
// Bench: the files of tuning caches line by line, so that each entry can say where it is from, and
// the words and JSON that all subcommands of `cache` use for them.
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
#include "autotune/entry/environment.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tuner_state.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cli/status_line.hpp"

namespace switchback::bench {

struct CacheLine {
  autotune::Entry entry;
  std::filesystem::path file;
  std::int64_t number = 0;
};
/// "machine.jsonl:17"
std::string place_of(const CacheLine& line);

struct CacheFile {
  std::filesystem::path path;
  TuneOrigin origin = TuneOrigin::exact;  ///< or system_list
  bool exists = false;
  std::string problem;     ///< why none of it can be read
  std::int64_t lines = 0;  ///< blank ones do not count
  std::vector<CacheLine> entries;
  std::vector<autotune::Warning> skipped;  ///< lines that are no entries
  std::vector<autotune::Warning> newer;    ///< lines of a schema to come
};
/// Never throws for what is in a file.
/// `trusted`: a file of a cache, as the library reads it; else one that a person named.
CacheFile read_cache_file(const std::filesystem::path& path, TuneOrigin origin = TuneOrigin::exact,
                          bool trusted = true);
/// The file of every machine in a cache directory, by name. Throws Error(io_error) if the directory
/// is there and cannot be read.
std::vector<std::filesystem::path> files_of_cache(const std::filesystem::path& cache);
/// What is wrong with the mode in the environment; empty if it is one, or none.
std::string wrong_mode();
/// How commands wait for the lock of a cache: long, and saying so.
autotune::LockWait patient(StatusLine& out);
/// Warnings of lines, the first hundred; `more` says what the others are.
void warn_of_lines(const std::vector<autotune::Warning>& lines, std::string_view more,
                   StatusLine& out);
/// What the options name or the usual one. Throws Error(invalid_argument) if there is none.
std::filesystem::path cache_directory_of(const CacheOptions& options);
/// Warnings of what could not be read, the first hundred of a file; returns how many lines that is.
std::int64_t warn_of_skipped(const CacheFile& file, StatusLine& out);

/// Why this Context does not look up a problem of a machine; empty if it does.
std::string why_foreign(const autotune::KeyParts& parts, const TunerState& tuner,
                        const Context& context);

/// This machine, its Context and its cache.
struct CacheView {
  explicit CacheView(const CacheOptions& options, bool near_shapes = false, bool strict = false);

  [[nodiscard]] const TunerState& tuner() const noexcept { return tuner_->state(); }
  /// This machine's file (or all machines'), then the system list.
  [[nodiscard]] std::vector<CacheFile> read(bool all) const;
  /// Why a key is none that this Context looks up; empty if it is one.
  [[nodiscard]] std::string foreign(const struct KeyGroup& group) const;

  Context context;

 private:
  std::shared_ptr<Tuner> tuner_;
};

/// All that is known of a problem of a machine, misses aside. Points into the files.
struct KeyGroup {
  autotune::Key key;
  std::optional<autotune::KeyParts> parts;
  std::string why;  ///< without parts: what of the key is unknown here
  std::vector<const CacheLine*> cache;
  std::vector<const CacheLine*> system_list;
};
/// In order of appearance. Leaves out what is_misplaced().
std::vector<KeyGroup> group_keys(const std::vector<CacheFile>& files);
/// Whether a line of a cache is in another machine's file, where no look-up finds it.
bool is_misplaced(const CacheLine& line, const autotune::KeyParts& parts);
/// What commands call a key: 16 hexadecimal digits, a hash of its text.
std::string name_of(const autotune::Key& key);
/// The group whose name begins so. Throws Error(invalid_argument) that lists the matches if there
/// are none or several.
const KeyGroup& find_key(const std::vector<KeyGroup>& groups, std::string_view beginning);
/// The problem in words; of an unreadable key, why it is.
std::string describe(const KeyGroup& group);

/// The best of some lines by the rules of a look-up.
const CacheLine* best_line(const std::vector<const CacheLine*>& lines,
                           const std::function<bool(const autotune::Entry&)>& usable);

/// The winner of a key as a look-up of this Context finds it; where that finds none, the best there
/// is.
struct Picked {
  const CacheLine* line = nullptr;  ///< null: there is no winner
  TuneOrigin origin = TuneOrigin::exact;
  bool usable = false;
  std::string why;  ///< why it is not
};
Picked pick(const KeyGroup& group, const CacheView& view);
/// Why the winner of an entry of a group is not what a look-up of this Context takes.
std::string why_not(const autotune::Entry& entry, const KeyGroup& group, const CacheView& view);

/// "2026-11-21"
std::string date_of(std::string_view time);
/// How many times as fast as the default; 0 if that is not known.
double speedup_of(const autotune::Winner& winner);
/// "1.32x", "-"
std::string speedup_text(const autotune::Winner& winner);
/// How many winners were measured on a product: "AMD EPYC 9R45".
using Products = std::map<std::string, std::int64_t>;
/// "AMD EPYC 9R45"; of several "AMD EPYC 9R45 (12), AMD EPYC 7763 (4)".
std::string text_of(const Products& products);
/// Engine and what is not zero of its attributes; of a layer's pass, modes from the fastest on.
std::string words_of(const autotune::CandidateText& candidate, std::optional<ConfigOp> op);
/// The configuration that runs where nothing is known.
ConfigChoice default_choice(const ConfigQuery& query, const Context& context);
/// The same in words.
autotune::CandidateText default_of(const ConfigQuery& query, const Context& context);

nlohmann::ordered_json to_json(const autotune::CandidateText& candidate);
nlohmann::ordered_json to_json(const autotune::Environment& env);
/// Winner, wrong candidates, environment and place; without the key.
nlohmann::ordered_json to_json(const CacheLine& line);
nlohmann::ordered_json to_json(const autotune::Warning& warning, std::string_view type);
/// One line on stdout.
void print_json(const nlohmann::ordered_json& object);

}  // namespace switchback::bench
