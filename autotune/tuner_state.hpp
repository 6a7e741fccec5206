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

#include "autotune/lookup.hpp"
#include "autotune/problem.hpp"
#include "autotune/store.hpp"
#include "autotune/tune.hpp"
#include "core/config_source.hpp"
#include "switchback/tuner.hpp"

namespace switchback {

struct TunerState final : ConfigSource {
  TunerState(const Context& context, const TunerOptions& options);

  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override;
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override;
  /// The answer to a query as find() would give it, without counting, recording or measuring it.
  autotune::Answer look_up(const ConfigQuery& query, const ContextState& state) const;

  /// Whether a problem was measured with at least this effort by what runs here, and is in the
  /// cache.
  bool knows(const ConfigQuery& query, const ContextState& state, autotune::Effort effort) const;
  /// Adds what a search found: to the file, or, with a warning, to memory alone.
  void add(std::vector<autotune::Record> records);
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
  void record_miss(const ConfigQuery& query) const;
  void store_records(std::vector<autotune::Record> records) const;
  std::vector<autotune::Record> records_of(const autotune::Key& key,
                                           const autotune::Snapshot& snapshot) const;

  /// What was measured since the cache was read, by key text.
  mutable std::unordered_map<std::string, std::vector<autotune::Record>> fresh_;
  /// Queries whose entry turned out not to run when it was to: they get the default from then on.
  mutable std::vector<ConfigQuery> refused_;
  struct Member {
    std::int64_t m;
    ConfigQuery query;
  };
  mutable std::unordered_map<std::string, std::vector<Member>> families_;
  mutable bool families_indexed_ = false;
  mutable bool store_failed_ = false;
  mutable bool record_failed_ = false;
  /// Guards everything above but the counters; held for as long as a first look-up takes.
  mutable std::mutex mutex_;
  mutable std::mutex warnings_mutex_;
  mutable std::vector<std::string> warnings_;
  mutable autotune::LookupTable answers_;
  mutable std::atomic<bool> stale_ = false;  ///< the answers are older than what is known
};

}  // namespace switchback
