// SPDX-License-Identifier: Apache-2.0
// Tuner: the state of a Tuner: the answers to look-ups, the entries that they come from, and the
// addition of new entries.
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
  /// The answer to a query as find() would give it. Does not count, record or measure anything.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// The checks of an entry that look-ups and knows() make; see candidate.hpp.
  std::vector<autotune::Verdict> judge(const autotune::Entry& entry, const ConfigQuery& query,
                                       const ContextState& state,
                                       std::optional<ConfigChoice>& choice) const;
  /// Whether the cache has a measurement of this problem with at least this effort that is valid
  /// here.
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
  /// Adds the results of searches to the file. If that fails, they are only in memory, and there is
  /// a warning.
  void add(std::vector<autotune::Entry> entries);
  /// Writes the entries that waited for the lock of the cache.
  void flush() const;
  /// The number of added entries in the file, the number that are only in memory, and why they are.
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
  std::filesystem::path cache_file;  ///< of this machine; empty if there is no cache directory
  std::filesystem::path record_file;
  mutable autotune::Snapshot cache;  ///< including what was measured after it was read
  autotune::Snapshot system_list;
  std::filesystem::path cache_directory;            ///< empty: not set
  std::filesystem::path system_directory;           ///< or a file; need not exist
  std::vector<std::filesystem::path> system_files;  ///< files of that directory, sorted by name

  /// How long writers wait for another process that holds a file's lock. A program that trains or
  /// serves waits at most one second in total until it gets the lock again. Commands wait longer.
  autotune::LockWait lock_wait{std::chrono::seconds(1), {}, {}};

  mutable std::atomic<std::int64_t> hits = 0;
  mutable std::atomic<std::int64_t> misses = 0;
  mutable std::atomic<std::int64_t> refusals = 0;

 private:
  void read_files(const ContextState& state);
  void find_system_files();
  /// Counts an answer and returns it, or throws in mode require.
  bool give(const autotune::Answer& answer, const ConfigQuery& query, ConfigChoice& choice) const;
  autotune::Answer resolve(const ConfigQuery& query, const ContextState& state) const;
  /// The configuration of the best entry of a key that is valid here. Sets `refused` if there are
  /// entries but none of them is valid.
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
  mutable std::optional<Families> families_;  ///< the cache's winners, for near shapes
  struct KernelsOfOp {
    ConfigOp op;
    core::KnownKernels kernels;
  };
  /// The known kernels of an operation; null if it has none.
  const core::KnownKernels* known_kernels(ConfigOp op) const;
  /// For each kernel that needs validation: the last result on this kind of machine, with this
  /// driver and this version of the library.
  mutable std::vector<KernelsOfOp> known_kernels_;
  mutable std::optional<autotune::PatientWriter> writer_;    ///< of the cache's file
  mutable std::optional<autotune::PatientWriter> recorder_;  ///< mode record: of missing problems
  mutable Stored unstored_;                                  ///< used without a cache file
  mutable std::int64_t measured_ = 0;                        ///< number of problems, in mode tune
  mutable std::int64_t recorded_ = 0;                        ///< number of problems, in mode record
  /// Guards everything above except the counters. A first look-up holds it until it is done.
  mutable std::mutex mutex_;
  mutable std::mutex validator_mutex_;
  mutable std::optional<autotune::Validator> validator_;  ///< for the device of the first candidate
  mutable std::mutex warnings_mutex_;
  mutable std::vector<std::string> warnings_;
  mutable std::optional<autotune::LookupTable> answers_;  ///< to the other queries
  /// Queries for which no configuration is known; in mode record, those that were recorded.
  mutable std::optional<autotune::QuerySet> unknown_;
  /// Queries whose entry could not run when it was used. They get the default from then on.
  mutable std::optional<autotune::QuerySet> refused_;
  mutable std::atomic<bool> stale_ = false;  ///< the answers are outdated
};

}  // namespace switchback
