// SPDX-License-Identifier: Apache-2.0
// Test support: `switchback-bench cache` as people run it, and caches for it.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/environment.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/records.hpp"
#include "autotune/session.hpp"
#include "autotune/store/store.hpp"
#include "autotune/task.hpp"
#include "autotune/tune.hpp"
#include "core/context_state.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/linear.hpp"

extern char** environ;

namespace switchback::bench {

namespace fs = std::filesystem;
using autotune::Effort;
using autotune::Record;
using autotune::RecordType;
using nlohmann::json;
using test::content;
using test::put;

inline constexpr const char* day = "2026-11-21T17:36:23Z";
inline constexpr const char* next_day = "2026-11-22T17:36:23Z";

struct Result {
  int code = -1;
  std::string out, err;
};

class Cache : public testing::Test {
 protected:
  Cache() : context_({"cpu", 1, ""}), machine_(autotune::machine_of(context_.state())) {
    fs::create_directories(in("system"));
  }

  [[nodiscard]] fs::path in(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] fs::path cache() const { return in("cache"); }
  [[nodiscard]] fs::path file(const autotune::Machine& machine) const {
    return autotune::cache_file(cache(), autotune::environment_name(machine));
  }
  [[nodiscard]] fs::path file() const { return file(machine_); }

  /// `switchback-bench cache`.
  [[nodiscard]] Result run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "cache");
    return run_program(arguments);
  }
  /// `switchback-bench` in an environment with these directories and nothing else of ours.
  [[nodiscard]] Result run_program(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{SWITCHBACK_BENCH_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      if (!text.starts_with("SWITCHBACK_TUNE") && !text.starts_with("XDG_CACHE_HOME"))
        variables.emplace_back(text);
    }
    variables.push_back("SWITCHBACK_TUNE_CACHE=" + cache().string());
    variables.push_back("SWITCHBACK_TUNE_SYSTEM=" + in("system").string());
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> all;
      all.reserve(texts.size() + 1);
      for (std::string& text : texts)
        all.push_back(text.data());
      all.push_back(nullptr);
      return all;
    };
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 1, in("stdout").c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&files, 2, in("stderr").c_str(), flags, 0600);
    pid_t child = -1;
    EXPECT_EQ(::posix_spawn(&child, SWITCHBACK_BENCH_PROGRAM, &files, nullptr,
                            pointers(words).data(), pointers(variables).data()),
              0);
    posix_spawn_file_actions_destroy(&files);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            content(in("stdout")), content(in("stderr"))};
  }
  /// For the Context of this test.
  [[nodiscard]] Result here(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--device", "cpu", "--threads", "1"});
    return run(arguments);
  }
  static std::vector<json> lines(const std::string& text) {
    std::vector<json> all;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      all.push_back(json::parse(line));
    return all;
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

  /// An int8 product with `rows` rows whose operands are not packed: many can compute it.
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
    return autotune::make_task(context_, query)->candidates();
  }
  /// A record as `tune` writes it. The candidates are numbered, the default is 0.
  Record record(RecordType type, const ConfigQuery& query, std::size_t candidate = 0,
                Effort effort = Effort::normal, const char* time = day) {
    Record r;
    r.type = type;
    r.key = autotune::key_of(query, machine_);
    r.env = autotune::environment_of(context_.state());
    r.effort = effort;
    r.time = time;
    if (type == RecordType::tombstone || type == RecordType::miss) return r;
    r.candidate = autotune::to_text(query.op, choices(query).at(candidate));
    if (type == RecordType::fail) {
      r.ok = false;
      r.why = "C[0,0] is 1, not 2";
      return r;
    }
    const double median_ms = candidate == 0 ? 0.5 : 0.25 / static_cast<double>(candidate);
    r.stats = {15, 0.1, 0.11, median_ms, 0.6, 0.7, 0.005};
    r.default_median_ms = 0.5;
    return r;
  }
  /// Of another machine, as its cache has it.
  Record foreign(Record r, std::int64_t cores = 999) const {
    std::string why;
    autotune::KeyParts parts = *autotune::parse_key(r.key.json, why);
    parts.machine.cores = cores;
    r.key = autotune::key_of(parts.query, parts.machine);
    return r;
  }
  [[nodiscard]] autotune::Machine other_machine(std::int64_t cores = 999) const {
    autotune::Machine machine = machine_;
    machine.cores = cores;
    return machine;
  }
  void store(const std::vector<Record>& records) const { autotune::Store(file()).append(records); }
  static void write(const fs::path& path, const std::vector<Record>& records) {
    std::string text;
    for (const Record& r : records)
      text += autotune::to_line(r) + '\n';
    put(path, text);
  }
  static std::vector<Record> read(const fs::path& path) {
    autotune::Snapshot snapshot;
    snapshot.add_file(path);
    EXPECT_EQ(snapshot.skipped(), 0);
    std::vector<Record> records;
    snapshot.for_each([&](const Record& r) { records.push_back(r); });
    return records;
  }
  static std::string newer_line(const Record& r) {
    return test::with_crc(test::replaced(test::fields_of(r), "\"v\":1", "\"v\":2"));
  }

  Context context_;
  autotune::Machine machine_;
  test::TemporaryDirectory directory_;
};

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}

}  // namespace switchback::bench
