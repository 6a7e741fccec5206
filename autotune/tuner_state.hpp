// SPDX-License-Identifier: Apache-2.0
// Tuner: the state of a Tuner: the answers to look-ups, the records they come from, and adding new
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

#include "autotune/entry/key.hpp"
#include "autotune/entry/validity.hpp"
#include "autotune/lookup.hpp"
#include "autotune/proof/prover.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "measure/disturbance.hpp"
#include "switchback/tuner.hpp"

namespace switchback {

struct TunerState final : ConfigSource {
  TunerState(const Context& context, const TunerOptions& options);
  /// Tries once more to write the records that wait for another process's lock.
  ~TunerState() override;

  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override;
  bool usual(const ConfigQuery& query, const ContextState& state,
             ConfigChoice& choice) const override;
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override;
  /// The answer to a query as find() would give it, without counting, recording or measuring it.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// The checks of an entry that look-ups and knows() make; see validity.hpp.
  std::vector<autotune::Verdict> judge(const autotune::Record& record, const ConfigQuery& query,
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
  /// Adds the results of a search for one problem: to the file, or, with a warning, only to memory.
  void add(std::vector<autotune::Record> records);
  /// Writes the records that have waited for the lock of the cache.
  void flush() const;
  /// How many calls of add() are in the file, how many are in memory alone, and why.
  struct Stored {
    std::int64_t stored = 0;
    std::int64_t lost = 0;
    std::string error;
  };
  Stored stored() const;
  /// Bytes used to remember look-ups. The limit depends on the number of problems in the cache and
  /// the system list, not on what is looked up.
  std::int64_t memory_bytes() const;
  std::int64_t most_memory_bytes() const;
  /// Adds a warning; a repeated text is dropped.
  void warn(std::string text) const override;
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
  std::filesystem::path system_directory;           ///< or a file; it need not exist
  std::vector<std::filesystem::path> system_files;  ///< of that directory, by name

  /// How long writers wait for another process that holds the cache's lock. A program that trains
  /// or serves waits at most one second in total until it gets the lock again; commands wait
  /// longer.
  autotune::LockWait lock_wait{std::chrono::seconds(1), {}, {}};

  mutable std::atomic<std::int64_t> hits = 0;
  mutable std::atomic<std::int64_t> misses = 0;
  mutable std::atomic<std::int64_t> refusals = 0;

 private:
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
  /// Learns from a measurement which kernels are right here, or wrong.
  void learn_kernel(const autotune::Record& record) const;
  bool proven_default(const ConfigQuery& query, const ContextState& state,
                      ConfigChoice& choice) const;
  bool first_answer(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const;
  std::optional<ConfigChoice> measure_now(const ConfigQuery& query,
                                          const ContextState& state) const;
  /// Whether there is no entry for a query, and nothing to do about it.
  bool is_settled_miss(std::uint64_t hash) const noexcept;
  void remember(const ConfigQuery& query, std::uint64_t hash, const autotune::Answer& answer) const;
  /// From now on a set of all known queries identifies the unknown ones.
  void index_known() const;
  void add_known(const ConfigQuery& query) const;
  void record_miss(const ConfigQuery& query, std::uint64_t hash) const;
  bool write(autotune::Store& file, std::vector<autotune::Record>& waiting, bool& failed,
             const char* consequence, std::string& error) const;
  void write_unsaved() const;
  void store_records(std::vector<autotune::Record> records) const;
  std::vector<autotune::Record> records_of(const autotune::Key& key,
                                           const autotune::Snapshot& snapshot) const;

  /// The measurements made since the cache was read, by key text.
  mutable std::unordered_map<std::string, std::vector<autotune::Record>> fresh_;
  /// Queries whose entry could not run when it was used: they get the default from then on.
  mutable std::optional<autotune::QuerySet> refused_;
  struct Member {
    std::int64_t m;
    ConfigQuery query;
  };
  mutable std::unordered_map<std::string, std::vector<Member>> families_;
  mutable bool families_indexed_ = false;
  mutable bool store_failed_ = false;
  mutable bool record_failed_ = false;
  struct KernelsOfOp {
    ConfigOp op;
    core::KnownKernels kernels;
  };
  /// Those of an operation; null if nothing is known of them.
  const core::KnownKernels* known_kernels(ConfigOp op) const;
  /// What the last measurement of each kernel that may fail said of it on this kind of machine,
  /// with this driver and this version of the library.
  mutable std::vector<KernelsOfOp> known_kernels_;
  mutable std::atomic<bool> knows_kernels_ = false;
  mutable std::vector<autotune::Record> unsaved_;  ///< records that wait for the cache's lock
  mutable std::int64_t unsaved_calls_ = 0;         ///< of add(), that they are of
  mutable Stored stored_;
  mutable std::vector<autotune::Record> unrecorded_;  ///< misses that wait for their file's lock
  mutable bool locked_out_ = false;                   ///< the last try ended at somebody's lock
  mutable autotune::Clock::time_point next_try_;      ///< then, if there is much to write
  mutable std::int64_t measured_ = 0;                 ///< problems, in mode tune
  /// Guards everything above but the counters; held for as long as a first look-up takes.
  mutable std::mutex mutex_;
  mutable std::mutex prover_mutex_;
  mutable std::optional<autotune::Prover> prover_;  ///< of the device of the first candidate
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
