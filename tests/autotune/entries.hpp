// SPDX-License-Identifier: Apache-2.0
// Tests of the tuner's store: entries to put into it, files to compare, and a lock to hold.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv is POSIX's
#include <sys/file.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/store/entry.hpp"

namespace switchback::test {

inline autotune::Key key_of(std::int64_t m) {
  return {fmt::format(R"({{"device":"cpu","k":512,"m":{},"n":1024,"op":"gemm_int8"}})", m)};
}
inline autotune::CandidateText candidate_of(std::int64_t mc) {
  return {"avx512_vnni", {{"mc", mc}, {"nc", 512}}, ""};
}
inline constexpr const char* default_time = "2026-11-21T17:36:23Z";

/// An entry that records a miss: it has no winner and no validated candidates.
inline autotune::Entry entry_of(std::int64_t m) {
  autotune::Entry entry;
  entry.key = key_of(m);
  entry.env.kernels = "7";
  entry.env.onednn = "2.6.3";
  entry.env.product = "AMD EPYC 9R45";
  entry.env.tool = "0.1.0";
  return entry;
}
inline autotune::Entry winner_of(std::int64_t m, autotune::Effort effort = autotune::Effort::normal,
                                 std::string_view time = default_time, std::int64_t mc = 96) {
  autotune::Entry entry = entry_of(m);
  autotune::Winner& winner = entry.winner.emplace();
  winner.candidate = candidate_of(mc);
  winner.stats = {20, 0.1, 0.11, 0.125, 0.13, 0.5, 0.005};
  winner.default_median_ms = 0.25;
  winner.effort = effort;
  winner.time = time;
  return entry;
}
/// A cache entry that records the check of one candidate. An empty `why`: the candidate was right.
inline autotune::Entry validated_of(std::int64_t m, std::int64_t mc, std::string_view why,
                                    std::string_view time = default_time) {
  autotune::Entry entry = entry_of(m);
  entry.validated.push_back({candidate_of(mc), std::string(why), std::string(time)});
  return entry;
}

/// The entry, with its measurement marked as disturbed by other programs in most rounds.
inline autotune::Entry doubtful(autotune::Entry entry) {
  entry.winner->timed_rounds = 24;
  entry.winner->discarded_rounds = 4;
  entry.winner->disturbed_rounds = 20;
  return entry;
}

inline std::string lines_of(const std::vector<autotune::Entry>& entries) {
  std::string lines;
  for (const autotune::Entry& entry : entries)
    lines += autotune::to_line(entry) + '\n';
  return lines;
}

/// `text` with the first occurrence of `what` replaced by `with`; unchanged if there is none.
inline std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}
/// The entry's line as a future version of the file format would write it.
inline std::string newer_line(const autotune::Entry& entry) {
  return replaced(autotune::to_line(entry), R"("v":1)", R"("v":2)");
}

inline void put(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}
inline std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Success if the text, such as a warning, contains `part`.
inline testing::AssertionResult contains(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

/// Sets an environment variable, or unsets it if there is no value. Restores its previous value on
/// destruction.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  void set(const std::optional<std::string>& value) {
    value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// The lock of a cache file, held as another process would hold it.
class HeldLock {
 public:
  explicit HeldLock(const std::filesystem::path& cache_file) {
    std::filesystem::create_directories(cache_file.parent_path());
    lock_ = ::open((cache_file.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::flock(lock_, LOCK_EX), 0);
  }
  ~HeldLock() { release(); }
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  void release() {
    if (lock_ >= 0) ::close(lock_);
    lock_ = -1;
  }

 private:
  int lock_;
};

}  // namespace switchback::test
