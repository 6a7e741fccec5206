// SPDX-License-Identifier: Apache-2.0
// Tuner: the state of a Tuner: the answers to look-ups, the entries they come from, and adding new
// ones.
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
#include "autotune/proof/prover.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
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
  bool usual(const ConfigQuery& query, const ContextState& state,
             ConfigChoice& choice) const override;
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override;
  /// The answer to a query as find() would give it, without counting, recording or measuring it.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// The checks of an entry that look-ups and knows() make; see candidate.hpp.
  std::vector<autotune::Verdict> judge(const autotune::Entry& entry, const ConfigQuery& query,
                                       const ContextState& state,
                                       std::optional<ConfigChoice>& choice) const;
  /// Whether the cache has a measurement of this problem with at least this effort that is valid
  /// here.
  bool knows(const ConfigQuery& query, const ContextState& state, autotune::Effort effort) const;
  /// Proves a candidate of a Context of this tuner's device in another process, which is kept for
  /// further candidates.
  autotune::Proof prove(const ConfigQuery& query, const ContextState& state,
                        const ConfigChoice& choice, double limit_s) const;
  /// Whether a candidate needs no proof: its kernel was proven by another problem.
  bool is_proven(const ConfigQuery& query, const ConfigChoice& choice) const;
  /// Ends that process.
  void end_proofs() const;
  /// Warns of candidates that could not be proven.
  void tell_unproven(const autotune::SearchResult& found) const;
  /// Notices other programs while this Context measures; nothing if the options do not want it.
  std::optional<measure::DisturbanceWatch> watch_for(const Context& context) const;
  /// Adds the results of searches: to the file, or, with a warning, only to memory.
  void add(std::vector<autotune::Entry> entries);
  /// Writes the entries that have waited for the lock of the cache.
  void flush() const;
  /// How many entries that were added are in the file, how many are in memory alone, and why.
  struct Stored {
    std::int64_t stored = 0;
    std::int64_t lost = 0;
    std::string error;
  };
  Stored stored() const;
  /// Bytes used to remember look-ups. The limit depends on the number of problems in the cache and
  /// the system list, not on what is looked up.
  std::int64_t memory_bytes() const;
  /// Adds a warning; a repeated text is dropped.
  void warn(std::string text) const override;
  std::vector<std::string> warnings() const;

  TunerOptions options;
  TuneMode mode = TuneMode::read;
  autotune::Machine machine;
  autotune::Policy policy;
  autotune::Environment environment;
  std::filesystem::path cache_file;  ///< of this machine; empty without a cache directory
  std::filesystem::path record_file;
  mutable autotune::Snapshot cache;  ///< with what was measured since it was read
  autotune::Snapshot system_list;
  std::filesystem::path cache_directory;            ///< empty: there is none
  std::filesystem::path system_directory;           ///< or a file; it need not exist
  std::vector<std::filesystem::path> system_files;  ///< of that directory, by name

  /// How long writers wait for another process that holds a file's lock. A program that trains or
  /// serves waits at most one second in total until it gets the lock again; commands wait longer.
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
  /// The configuration of the best entry of a key that is valid here; `refused` is set if there are
  /// entries but none is valid.
  std::optional<ConfigChoice> best_of(const autotune::Snapshot& snapshot, const autotune::Key& key,
                                      const ConfigQuery& query, const ContextState& state,
                                      bool& refused) const;
  std::optional<ConfigChoice> near(const ConfigQuery& query, const ContextState& state) const;
  void index_families() const;
  /// Learns from measurements which kernels are right here, or wrong.
  void learn_kernels(const std::vector<autotune::Entry>& entries) const;
  bool proven_default(const ConfigQuery& query, const ContextState& state,
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
  mutable std::optional<Families> families_;  ///< of the cache's winners, for near shapes
  struct KernelsOfOp {
    ConfigOp op;
    core::KnownKernels kernels;
  };
  /// Those of an operation; null if nothing is known of them.
  const core::KnownKernels* known_kernels(ConfigOp op) const;
  /// What the last measurement of each kernel that may fail said of it on this kind of machine,
  /// with this driver and this version of the library.
  mutable std::vector<KernelsOfOp> known_kernels_;
  mutable std::optional<autotune::PatientWriter> writer_;    ///< of the cache's file
  mutable std::optional<autotune::PatientWriter> recorder_;  ///< mode record: of missing problems
  mutable Stored unstored_;                                  ///< without a cache file
  mutable std::int64_t measured_ = 0;                        ///< problems, in mode tune
  mutable std::int64_t recorded_ = 0;                        ///< problems, in mode record
  /// Guards all of this but the counters; held for as long as a first look-up takes.
  mutable std::mutex mutex_;
  mutable std::mutex prover_mutex_;
  mutable std::optional<autotune::Prover> prover_;  ///< of the device of the first candidate
  mutable std::mutex warnings_mutex_;
  mutable std::vector<std::string> warnings_;
  mutable std::optional<autotune::LookupTable> answers_;  ///< to all other queries
  /// Queries of which nothing is known; in mode record, those that were recorded.
  mutable std::optional<autotune::QuerySet> unknown_;
  /// Queries whose entry could not run when it was used: they get the default from then on.
  mutable std::optional<autotune::QuerySet> refused_;
  mutable std::atomic<bool> stale_ = false;  ///< the answers are older than what is known
};

}  // namespace switchback
