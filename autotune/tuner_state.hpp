// SPDX-License-Identifier: Apache-2.0
// Tuner: the state of a Tuner. It answers look-ups of configurations, holds the cache entries that
// the answers come from, and adds new entries.
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

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/lookup.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
#include "autotune/validation/validator.hpp"
#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "measure/disturbance.hpp"
#include "switchback/tuner.hpp"

namespace switchback {

struct TunerState final : ConfigSource {
  TunerState(const Context& context, const TunerOptions& options);
  /// Tries once more to write the entries that wait for another process's lock.
  ~TunerState() override;

  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override;
  bool by_default(const ConfigQuery& query, const ContextState& state,
                  ConfigChoice& choice) const override;
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override;
  /// Returns the answer that find() would give to a query. Does not count, record or measure
  /// anything.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// Checks whether a cache entry may be used here, as look-ups and knows() do; see judge() in
  /// candidate.hpp.
  std::vector<autotune::Verdict> judge(const autotune::Entry& entry, const ConfigQuery& query,
                                       const ContextState& state,
                                       std::optional<ConfigChoice>& choice) const;
  /// Whether the cache has a measurement of this problem, made with at least this effort, that may
  /// be used here.
  bool knows(const ConfigQuery& query, const ContextState& state, autotune::Effort effort) const;
  /// Validates a candidate for the device of this tuner's Contexts in another process. That process
  /// is kept for further candidates.
  autotune::Validation validate(const ConfigQuery& query, const ContextState& state,
                                const ConfigChoice& choice, double limit_s) const;
  /// Whether a candidate needs no validation, because its kernel was validated with another
  /// problem.
  bool is_validated(const ConfigQuery& query, const ConfigChoice& choice) const;
  /// Ends the validation process.
  void end_validation() const;
  /// Warns of candidates that could not be validated.
  void tell_unvalidated(const autotune::SearchResult& found) const;
  /// Detects other programs' activity while this Context measures. Does nothing if the options
  /// disable it.
  std::optional<measure::DisturbanceWatch> watch_for(const Context& context) const;
  /// Adds entries to the cache. If they cannot be written to its file, they are only in memory, and
  /// there is a warning.
  void add(std::vector<autotune::Entry> entries);
  /// Tries to write the entries that wait for the lock of the cache's file.
  void flush() const;
  /// How many added entries are in the cache's file, how many are only in memory, and why.
  struct Stored {
    std::int64_t stored = 0;
    std::int64_t lost = 0;
    std::string error;
  };
  Stored stored() const;
  /// Bytes used to remember look-ups. The limit depends on the number of problems in the cache and
  /// the system list, not on the queries.
  std::int64_t memory_bytes() const;
  /// Adds a warning; a text that was added before is dropped.
  void warn(std::string text) const override;
  std::vector<std::string> warnings() const;

  TunerOptions options;
  TuneMode mode = TuneMode::read;
  autotune::Machine machine;
  autotune::Policy policy;
  autotune::Environment environment;
  std::filesystem::path cache_file;  ///< this machine's file; empty if there is no cache directory
  std::filesystem::path record_file;
  mutable autotune::Snapshot cache;  ///< entries of the cache's file and entries added later
  autotune::Snapshot system_list;
  std::filesystem::path cache_directory;            ///< of all caches; may be empty
  std::filesystem::path system_directory;           ///< a directory or a file; need not exist
  std::vector<std::filesystem::path> system_files;  ///< files of system_directory, sorted by name

  /// How long writers wait for another process that holds a file's lock. A program that trains or
  /// serves waits at most one second in total until it gets the lock again. Commands wait longer.
  autotune::LockWait lock_wait{std::chrono::seconds(1), {}, {}};

  mutable std::atomic<std::int64_t> hits = 0;
  mutable std::atomic<std::int64_t> misses = 0;
  mutable std::atomic<std::int64_t> refusals = 0;

 private:
  void read_files(const ContextState& state);
  void find_system_files();
  /// Counts the answer to a look-up and returns it. In mode require, throws if it is a miss.
  bool give(const autotune::Answer& answer, const ConfigQuery& query, ConfigChoice& choice) const;
  autotune::Answer resolve(const ConfigQuery& query, const ContextState& state) const;
  /// The configuration of the best entry of a key that may be used here. Sets `refused` if there
  /// are entries but none of them may be used.
  std::optional<ConfigChoice> best_of(const autotune::Snapshot& snapshot, const autotune::Key& key,
                                      const ConfigQuery& query, const ContextState& state,
                                      bool& refused) const;
  std::optional<ConfigChoice> near(const ConfigQuery& query, const ContextState& state) const;
  void index_families() const;
  /// Notes which kernels the entries found right or wrong on this machine.
  void learn_kernels(const std::vector<autotune::Entry>& entries) const;
  bool validated_default(const ConfigQuery& query, const ContextState& state,
                         ConfigChoice& choice) const;
  bool first_answer(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const;
  std::optional<ConfigChoice> measure_now(const ConfigQuery& query,
                                          const ContextState& state) const;
  void remember(const ConfigQuery& query, std::uint64_t hash, const autotune::Answer& answer) const;
  void record_miss(const ConfigQuery& query) const;
  void store_entries(std::vector<autotune::Entry> entries) const;
  std::vector<autotune::Entry> entries_of(const autotune::Key& key,
                                          const autotune::Snapshot& snapshot) const;

  struct Member {
    std::int64_t m;
    ConfigQuery query;
  };
  using Families = std::unordered_map<std::string, std::vector<Member>>;
  /// The problems that have a winner in the cache, by family, for TunerOptions::near_shapes.
  mutable std::optional<Families> families_;
  struct KernelsOfOp {
    ConfigOp op;
    core::KnownKernels kernels;
  };
  /// The kernels of an operation that are known to be right or wrong; null if no kernel is known.
  const core::KnownKernels* known_kernels(ConfigOp op) const;
  /// For each kernel that needs validation: the last result of its validation on this kind of
  /// machine, with this driver and this version of the library.
  mutable std::vector<KernelsOfOp> known_kernels_;
  mutable std::optional<autotune::PatientWriter> writer_;    ///< writes the cache's file
  mutable std::optional<autotune::PatientWriter> recorder_;  ///< writes the file of mode record
  mutable Stored unstored_;            ///< what stored() returns if there is no cache file
  mutable std::int64_t measured_ = 0;  ///< problems that mode tune has measured
  mutable std::int64_t recorded_ = 0;  ///< problems that mode record has written
  /// Guards all members above except the counters. The first look-up of a query holds it while it
  /// searches the entries, but not while it measures.
  mutable std::mutex mutex_;
  mutable std::mutex validator_mutex_;
  /// Validates candidates in another process, on the device of the first candidate.
  mutable std::optional<autotune::Validator> validator_;
  mutable std::mutex warnings_mutex_;
  mutable std::vector<std::string> warnings_;
  /// The answers to queries for which there is a configuration or an entry that cannot be used.
  mutable std::optional<autotune::LookupTable> answers_;
  /// Queries for which no configuration is known. In mode record, they have been recorded.
  mutable std::optional<autotune::QuerySet> unknown_;
  /// Queries whose tuned configuration could not run when it was used. Since then they get the
  /// default.
  mutable std::optional<autotune::QuerySet> refused_;
  mutable std::atomic<bool> stale_ = false;  ///< whether answers_ and unknown_ are outdated
};

}  // namespace switchback
