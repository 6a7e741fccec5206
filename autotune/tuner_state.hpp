// SPDX-License-Identifier: Apache-2.0
// Tuner: what a Tuner is inside: the answers to look-ups, the records they come from, and the way
// to new ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "autotune/key.hpp"
#include "autotune/lookup.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
#include "core/config_source.hpp"
#include "switchback/tuner.hpp"

namespace switchback {

struct TunerState final : ConfigSource {
  TunerState(const Context& context, const TunerOptions& options);
  /// Tries once more to write what waits for another process's lock.
  ~TunerState() override;

  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override;
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override;
  /// The answer to a query as find() would give it, without counting, recording or measuring it.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// Whether a problem was measured with at least this effort by what runs here, and is in the
  /// cache.
  bool knows(const ConfigQuery& query, const ContextState& state, autotune::Effort effort) const;
  /// Adds what a search found of one problem: to the file, or, with a warning, to memory alone.
  void add(std::vector<autotune::Record> records);
  /// Writes what waited for the lock of the cache so far.
  void flush() const;
  /// How many calls of add() are in the file, how many are in memory alone, and why.
  struct Stored {
    std::int64_t stored = 0;
    std::int64_t lost = 0;
    std::string error;
  };
  Stored stored() const;
  /// Bytes of what is remembered of look-ups. It has a bound, whatever is looked up: of the number
  /// of problems that the cache and the system list know, and of constants.
  std::int64_t memory_bytes() const;
  std::int64_t most_memory_bytes() const;
  /// One warning; the same text a second time is dropped.
  void warn(std::string text) const;
  std::vector<std::string> warnings() const;

  TunerOptions options;
  TuneMode mode = TuneMode::read;
  autotune::Machine machine;
  autotune::Policy policy;
  autotune::Environment environment;
  std::optional<autotune::Store> store;  ///< none if there is no cache directory
  autotune::Snapshot cache;
  autotune::Snapshot system_list;
  std::string record_file;
  std::filesystem::path cache_directory;            ///< empty: there is none
  std::filesystem::path system_directory;           ///< it need not exist
  std::vector<std::filesystem::path> system_files;  ///< of that directory, by name

  /// How writers wait for another process that holds the cache's lock. In a program that trains or
  /// serves no longer than a second in all, until it is let in again; commands wait longer.
  autotune::LockWait lock_wait{std::chrono::seconds(1), {}, {}};

  mutable std::atomic<std::int64_t> hits = 0;
  mutable std::atomic<std::int64_t> misses = 0;
  mutable std::atomic<std::int64_t> refusals = 0;

 private:
  /// Counts an answer and hands it out, or throws in mode require.
  bool give(const autotune::Answer& answer, const ConfigQuery& query, ConfigChoice& choice) const;
  autotune::Answer resolve(const ConfigQuery& query, const ContextState& state) const;
  /// The configuration of the best entry of a key that holds here; `refused` is set if there are
  /// entries and none does.
  std::optional<ConfigChoice> best_of(const autotune::Snapshot& snapshot, const autotune::Key& key,
                                      const ConfigQuery& query, const ContextState& state,
                                      bool& refused) const;
  std::optional<ConfigChoice> near(const ConfigQuery& query, const ContextState& state) const;
  void index_families() const;
  bool first_answer(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const;
  std::optional<ConfigChoice> measure_now(const ConfigQuery& query,
                                          const ContextState& state) const;
  /// Whether nothing is known of a query, and nothing is to be done about that either.
  bool is_settled_miss(std::uint64_t hash) const noexcept;
  void remember(const ConfigQuery& query, std::uint64_t hash, const autotune::Answer& answer) const;
  /// From here on queries of which nothing is known are told by a set of all others.
  void index_known() const;
  void add_known(const ConfigQuery& query) const;
  void record_miss(const ConfigQuery& query, std::uint64_t hash) const;
  bool write(autotune::Store& file, std::vector<autotune::Record>& waiting, bool& failed,
             const char* consequence, std::string& error) const;
  void write_unsaved() const;
  void store_records(std::vector<autotune::Record> records) const;
  std::vector<autotune::Record> records_of(const autotune::Key& key,
                                           const autotune::Snapshot& snapshot) const;

  /// What was measured since the cache was read, by key text.
  mutable std::unordered_map<std::string, std::vector<autotune::Record>> fresh_;
  /// Queries whose entry turned out not to run when it was to: they get the default from then on.
  mutable std::optional<autotune::QuerySet> refused_;
  struct Member {
    std::int64_t m;
    ConfigQuery query;
  };
  mutable std::unordered_map<std::string, std::vector<Member>> families_;
  mutable bool families_indexed_ = false;
  mutable bool store_failed_ = false;
  mutable bool record_failed_ = false;
  mutable std::vector<autotune::Record> unsaved_;  ///< records that wait for the cache's lock
  mutable std::int64_t unsaved_calls_ = 0;         ///< of add(), that they are of
  mutable Stored stored_;
  mutable std::vector<autotune::Record> unrecorded_;  ///< misses that wait for their file's lock
  mutable bool locked_out_ = false;                   ///< the last try ended at somebody's lock
  mutable autotune::Clock::time_point next_try_;      ///< then, if there is much to write
  mutable std::int64_t measured_ = 0;                 ///< problems, in mode tune
  /// Guards everything above but the counters; held for as long as a first look-up takes.
  mutable std::mutex mutex_;
  mutable std::mutex warnings_mutex_;
  mutable std::vector<std::string> warnings_;
  mutable std::optional<autotune::LookupTable> answers_;
  mutable std::size_t misses_remembered_ = 0;  ///< of answers_: those that no file's size bounds
  /// All queries of which something is known, once it pays to have it; the last one is in use.
  mutable std::vector<std::unique_ptr<autotune::QuerySet>> known_sets_;
  mutable std::atomic<const autotune::QuerySet*> known_ = nullptr;
  mutable std::optional<autotune::QuerySet> recorded_;  ///< mode record: misses that are written
  mutable std::atomic<bool> recording_over_ = false;
  mutable std::atomic<bool> stale_ = false;  ///< the answers are older than what is known
};

}  // namespace switchback
