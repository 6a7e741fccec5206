// SPDX-License-Identifier: Apache-2.0
// Test support: runs `switchback-bench cache` as users do, and makes caches for it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "autotune/entries.hpp"
#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/operations.hpp"
#include "autotune/session.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
#include "bench/commands.hpp"
#include "core/context_state.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Effort;
using autotune::Entry;
using nlohmann::json;
using test::content;
using test::put;

inline constexpr const char* day = "2026-11-21T17:36:23Z";
inline constexpr const char* next_day = "2026-11-22T17:36:23Z";

/// A test whose programs have this test's directories in their environment, and not the user's
/// settings of the tuner.
class Cache : public ProgramTest {
 protected:
  Cache() : context_({"cpu", 1, ""}), machine_(autotune::machine_of(context_.state())) {
    fs::create_directories(in("system"));
    environment_ = {"-u",
                    "SWITCHBACK_TUNE",
                    "-u",
                    "SWITCHBACK_TUNE_RECORD",
                    "SWITCHBACK_TUNE_CACHE=" + cache().string(),
                    "SWITCHBACK_TUNE_SYSTEM=" + in("system").string()};
  }

  [[nodiscard]] fs::path cache() const { return in("cache"); }
  [[nodiscard]] fs::path file(const autotune::Machine& machine) const {
    return autotune::cache_file(cache(), autotune::machine_name(machine));
  }
  [[nodiscard]] fs::path file() const { return file(machine_); }

  /// Runs `switchback-bench cache` with these arguments.
  [[nodiscard]] Result run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    return run_program(arguments);
  }
  /// Runs `switchback-bench cache` with the device and the number of threads of this test's
  /// Context.
  [[nodiscard]] Result here(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--device", "cpu", "--threads", "1"});
    return run(arguments);
  }
  /// The first JSON object that the command prints.
  [[nodiscard]] json json_here(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    return json_lines(here(arguments).out).at(0);
  }
  static json only(const std::vector<json>& all, const std::string& type) {
    json found;
    for (const json& line : all)
      if (line["type"] == type) {
        EXPECT_TRUE(found.is_null()) << "more than one " << type;
        found = line;
      }
    return found;
  }

  /// An int8 product with `rows` rows whose operands are not packed: many engines can compute it.
  [[nodiscard]] ConfigQuery product(std::int64_t rows = 4) {
    TuneShape shape;
    shape.rows = rows;
    shape.in_features = 16;
    shape.out_features = 8;
    for (const ConfigQuery& query : autotune::queries_of(context_, {shape})) {
      std::string why;
      const std::string key = autotune::key_of(query, machine_).json;
      if (query.op == ConfigOp::gemm_int8 && key.find(R"("packed_for":"none")") != key.npos)
        return query;
    }
    ADD_FAILURE() << "there is no such product";
    return {};
  }
  std::vector<ConfigChoice> choices(const ConfigQuery& query) {
    return autotune::make_trial(context_, query)->candidates();
  }
  /// A miss.
  [[nodiscard]] Entry entry(const ConfigQuery& query) const {
    return {autotune::key_of(query, machine_), autotune::environment_of(context_.state()), {}, {}};
  }
  /// A cache entry as `tune` writes it. `candidate` is the index of the winner among the
  /// candidates; 0 is the default.
  Entry winner(const ConfigQuery& query, std::size_t candidate = 0, Effort effort = Effort::normal,
               const char* time = day) {
    Entry e = entry(query);
    autotune::Winner& w = e.winner.emplace();
    w.candidate = autotune::to_text(query.op, choices(query).at(candidate));
    const double median_ms = candidate == 0 ? 0.5 : 0.25 / static_cast<double>(candidate);
    w.stats = {15, 0.1, 0.11, median_ms, 0.6, 0.7, 0.005};
    w.default_median_ms = 0.5;
    w.effort = effort;
    w.time = time;
    return e;
  }
  Entry wrong(const ConfigQuery& query, std::size_t candidate, const char* time = day) {
    Entry e = entry(query);
    e.validated.push_back(
        {autotune::to_text(query.op, choices(query).at(candidate)), "C[0,0] is 1, not 2", time});
    return e;
  }
  /// The entry as a machine with another number of cores has it in its cache.
  [[nodiscard]] static Entry foreign(Entry e, std::int64_t cores = 999) {
    std::string why;
    autotune::KeyParts parts = *autotune::parse_key(e.key.json, why);
    parts.machine.cores = cores;
    e.key = autotune::key_of(parts.query, parts.machine);
    return e;
  }
  [[nodiscard]] autotune::Machine other_machine(std::int64_t cores = 999) const {
    autotune::Machine machine = machine_;
    machine.cores = cores;
    return machine;
  }
  void store(const std::vector<Entry>& entries) const { autotune::put_into(file(), entries); }
  static void write(const fs::path& path, const std::vector<Entry>& entries) {
    put(path, test::lines_of(entries));
  }
  static std::vector<Entry> read(const fs::path& path) {
    autotune::Snapshot snapshot;
    snapshot.add_file(path);
    EXPECT_EQ(snapshot.skipped(), 0);
    std::vector<Entry> entries;
    snapshot.for_each([&](const Entry& e) { entries.push_back(e); });
    return entries;
  }

  Context context_;
  autotune::Machine machine_;
};

}  // namespace switchback::bench
