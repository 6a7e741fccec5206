// SPDX-License-Identifier: Apache-2.0
// Bench: reads the files of tuning caches line by line, so that each entry knows its file and line.
// Also the texts and JSON that all subcommands of `cache` use for entries.
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
  std::string problem;     ///< why the file cannot be read
  std::int64_t lines = 0;  ///< without blank lines
  std::vector<CacheLine> entries;
  std::vector<autotune::Warning> skipped;  ///< lines that are not entries
  std::vector<autotune::Warning> newer;    ///< lines of a later version of the schema
};
/// Never throws because of the contents of a file.
/// `trusted`: the file belongs to a cache and must pass the library's checks; otherwise the user
/// named it.
CacheFile read_cache_file(const std::filesystem::path& path, TuneOrigin origin = TuneOrigin::exact,
                          bool trusted = true);
/// The files of all machines in a cache directory, by name. Throws Error(io_error) if the directory
/// exists but cannot be read.
std::vector<std::filesystem::path> files_of_cache(const std::filesystem::path& cache);
/// Why the mode in the environment is invalid; empty if it is valid or not set.
std::string wrong_mode();
/// How commands wait for the lock of a cache: for a long time, with a message.
autotune::LockWait patient(StatusLine& out);
/// Warns of lines, of the first hundred only; `more` describes the rest.
void warn_of_lines(const std::vector<autotune::Warning>& lines, std::string_view more,
                   StatusLine& out);
/// The directory that the options name, or the default one. Throws Error(invalid_argument) if there
/// is none.
std::filesystem::path cache_directory_of(const CacheOptions& options);
/// Warns of the lines that could not be read, of the first hundred in a file; returns their number.
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
  /// Why this Context does not look up a key; empty if it does.
  [[nodiscard]] std::string foreign(const struct KeyGroup& group) const;

  Context context;

 private:
  std::shared_ptr<Tuner> tuner_;
};

/// Everything that is known of a problem of a machine, except misses. Points into the files.
struct KeyGroup {
  autotune::Key key;
  std::optional<autotune::KeyParts> parts;
  std::string why;  ///< if there are no parts: which part of the key is unknown here
  std::vector<const CacheLine*> cache;
  std::vector<const CacheLine*> system_list;
};
/// In the order of appearance, without lines that are is_misplaced().
std::vector<KeyGroup> group_keys(const std::vector<CacheFile>& files);
/// Whether a line of a cache is in another machine's file, where look-ups do not find it.
bool is_misplaced(const CacheLine& line, const autotune::KeyParts& parts);
/// The name that commands use for a key: 16 hexadecimal digits, a hash of its text.
std::string name_of(const autotune::Key& key);
/// The group whose name begins with this text. If none or several match, throws
/// Error(invalid_argument) that lists the matches.
const KeyGroup& find_key(const std::vector<KeyGroup>& groups, std::string_view beginning);
/// A text for the problem; for an unreadable key, why it is unreadable.
std::string describe(const KeyGroup& group);

/// The best of several lines, by the rules of a look-up.
const CacheLine* best_line(const std::vector<const CacheLine*>& lines,
                           const std::function<bool(const autotune::Entry&)>& usable);

/// The winner of a key as a look-up of this Context finds it. If a look-up finds none, the best
/// winner that exists.
struct Picked {
  const CacheLine* line = nullptr;  ///< null: there is no winner
  TuneOrigin origin = TuneOrigin::exact;
  bool usable = false;
  std::string why;  ///< why it is not usable
};
Picked pick(const KeyGroup& group, const CacheView& view);
/// Why a look-up of this Context does not choose the winner of this entry.
std::string why_not(const autotune::Entry& entry, const KeyGroup& group, const CacheView& view);

/// "2026-11-21"
std::string date_of(std::string_view time);
/// The speed-up over the default; 0 if it is not known.
double speedup_of(const autotune::Winner& winner);
/// "1.32x", "-"
std::string speedup_text(const autotune::Winner& winner);
/// The number of winners that were measured on each product: "AMD EPYC 9R45".
using Products = std::map<std::string, std::int64_t>;
/// "AMD EPYC 9R45"; if there are several, "AMD EPYC 9R45 (12), AMD EPYC 7763 (4)".
std::string text_of(const Products& products);
/// Engine and the attributes that are not zero; for a layer's pass, the modes from the fastest on.
std::string words_of(const autotune::CandidateText& candidate, std::optional<ConfigOp> op);
/// The configuration that runs if nothing is known.
ConfigChoice default_choice(const ConfigQuery& query, const Context& context);
/// The same as text.
autotune::CandidateText default_of(const ConfigQuery& query, const Context& context);

nlohmann::ordered_json to_json(const autotune::CandidateText& candidate);
nlohmann::ordered_json to_json(const autotune::Environment& env);
/// Winner, wrong candidates, environment and file position; without the key.
nlohmann::ordered_json to_json(const CacheLine& line);
nlohmann::ordered_json to_json(const autotune::Warning& warning, std::string_view type);
/// Prints one line to stdout.
void print_json(const nlohmann::ordered_json& object);

}  // namespace switchback::bench
