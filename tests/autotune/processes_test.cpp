// SPDX-License-Identifier: Apache-2.0
// The store among processes: several write, some are killed, the disk is full. Children do their
// work between fork() and _exit() and report by a pipe or their exit status; this program has no
// threads.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "autotune/records.hpp"
#include "autotune/store/store.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::key_of;
using test::put;
using test::record_of;
using test::winner_of;

/// Runs `work` in a child, whose exit status is what it returns; 99 if it throws.
template <class Work>
pid_t start(Work work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int status = 99;
  try {
    status = work();
  } catch (...) {
  }
  ::_exit(status);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}
void expect_success(pid_t child) {
  const int status = wait_for(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

Snapshot load(const fs::path& file) {
  Snapshot snapshot;
  snapshot.add_file(file);
  return snapshot;
}

TEST(StoreProcesses, TwoWritersAndACompactorLoseNothing) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  constexpr std::int64_t records = 200;
  const auto writer = [&](std::int64_t first) {
    return start([&, first] {
      Store store(file);
      for (std::int64_t m = first; m < first + records; ++m) {
        const std::vector<Record> both = {record_of(RecordType::sample, m), winner_of(m)};
        store.append(both);
        if (m % 7 == 0) store.append(std::vector{winner_of(m, Effort::quick)});  // to be dropped
        if (m % 23 == 0) store.compact(true);
      }
      return 0;
    });
  };
  const pid_t one = writer(0);
  const pid_t two = writer(1000);
  const pid_t compactor = start([&] {
    for (int i = 0; i < 40; ++i) {
      Store(file).compact(true);
      ::usleep(2000);
    }
    return 0;
  });
  // A reader, who does not lock, sees whole lines but for the one that is being written.
  for (int i = 0; i < 40; ++i) {
    EXPECT_LE(load(file).skipped(), 1);
    ::usleep(1000);
  }
  expect_success(one);
  expect_success(two);
  expect_success(compactor);

  Store(file).compact(true);
  const Snapshot snapshot = load(file);
  EXPECT_EQ(snapshot.skipped(), 0);
  EXPECT_EQ(snapshot.lines(), 4 * records);
  std::int64_t samples = 0;
  snapshot.for_each(
      [&](const Record& record) { samples += record.type == RecordType::sample ? 1 : 0; });
  EXPECT_EQ(samples, 2 * records);
  for (const std::int64_t first : {0, 1000})
    for (std::int64_t m = first; m < first + records; ++m)
      ASSERT_EQ(snapshot.find(key_of(m)), (std::vector{winner_of(m)})) << m;
}

TEST(StoreProcesses, AKilledWriterLosesNothingThatWasAppended) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  std::mt19937 random(5);
  std::int64_t appended = 0;  // keys 0 … appended are there
  for (int round = 0; round < 30; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = start([&] {
      ::close(pipe_ends[0]);
      Store store(file);
      for (std::int64_t m = appended;; ++m) {
        // Long enough that the system writes it page by page.
        Record winner = winner_of(m);
        winner.candidate.algo_hex = std::string(20'000, '0');
        store.append(std::vector{winner, record_of(RecordType::sample, m)});
        if (::write(pipe_ends[1], &m, sizeof(m)) != sizeof(m)) return 1;
        if (m % 3 == 0) store.append(std::vector{winner_of(m, Effort::cut)});
        if (m % 5 == 0) store.compact(true);
      }
      return 0;
    });
    ASSERT_GT(child, 0);
    ::close(pipe_ends[1]);
    // Not before the first is there, so that every round has something to lose.
    std::int64_t last = -1;
    ASSERT_EQ(::read(pipe_ends[0], &last, sizeof(last)), static_cast<ssize_t>(sizeof(last)));
    ::usleep(static_cast<useconds_t>(random() % 20'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    const int status = wait_for(child);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    for (std::int64_t m = 0; ::read(pipe_ends[0], &m, sizeof(m)) == sizeof(m);)
      last = m;
    ::close(pipe_ends[0]);
    appended = last + 1;

    const Snapshot snapshot = load(file);
    ASSERT_LE(snapshot.skipped(), round + 1);  // torn tails that were not compacted away
    for (std::int64_t m = 0; m < appended; ++m) {
      const std::vector<Record> found = snapshot.find(key_of(m));
      ASSERT_GE(found.size(), 1u) << "record " << m << " of " << appended << ", round " << round;
      ASSERT_EQ(found[0].effort, Effort::normal);
      ASSERT_EQ(found[0].candidate.algo_hex.size(), 20'000u);
    }
    // The child may have appended one more than it could report.
    if (!snapshot.find(key_of(appended)).empty()) ++appended;
  }
  EXPECT_GE(appended, 30);
  Store(file).compact(true);
  EXPECT_EQ(load(file).skipped(), 0);
  EXPECT_EQ(load(file).key_hashes().size(), static_cast<std::size_t>(appended));
}

TEST(StoreProcesses, AFullDiskIsAnErrorAndChangesNothing) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  Store(file).append(std::vector{winner_of(1), winner_of(2)});
  const std::string before = content(file);
  for (const std::size_t room : {std::size_t{0}, std::size_t{1}, std::size_t{100}, before.size()}) {
    for (const bool torn : {false, true}) {
      const std::string text = before + (torn ? "{\"v\":1,\"ty" : "");
      put(file, text);
      const pid_t child = start([&] {
        // Limits of this process alone, so that the parent's are as they were.
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{text.size() + room, text.size() + room};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
        std::vector<Record> records;
        for (std::int64_t m = 10; m < 20; ++m)
          records.push_back(winner_of(m));
        const auto refused = [&](const auto& call, const std::string& named) {
          try {
            call();
          } catch (const Error& error) {
            return error.status() == Status::io_error && std::string(error.what()).find(named) == 0;
          }
          return false;
        };
        Store store(file);
        if (!refused([&] { store.append(records); }, file.string() + ": ")) return 2;
        if (content(file) != text) return 3;
        if (!refused([&] { store.replace(records); }, file.string() + ".tmp: ")) return 4;
        if (content(file) != text) return 5;
        if (fs::exists(file.string() + ".tmp")) return 6;
        return 0;
      });
      expect_success(child);
      EXPECT_EQ(content(file), text);
      // And with room again, it goes on.
      Store(file).append(std::vector{winner_of(3)});
      const Snapshot snapshot = load(file);
      EXPECT_EQ(snapshot.lines(), 3);
      EXPECT_EQ(snapshot.skipped(), torn ? 1 : 0);
    }
  }
}

// The signal that the system sends at the limit would end a program that does not expect it, and is
// none of the library's to ignore for the whole process.
TEST(StoreProcesses, ALimitOnFileSizesEndsNoProcess) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  Store(file).append(std::vector{winner_of(1), winner_of(2)});
  const std::string before = content(file);
  for (const std::size_t limit : {before.size() / 2, before.size(), before.size() + 10}) {
    const pid_t child = start([&] {
      ::signal(SIGXFSZ, SIG_DFL);
      const rlimit size{limit, limit};
      if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
      Store store(file);
      try {
        store.append(std::vector{winner_of(3)});
        return 2;
      } catch (const Error& error) {
        if (error.status() != Status::io_error) return 3;
      }
      if (content(file) != before) return 4;
      // Nothing is left behind: the signal is not pending, not blocked, and does what it did.
      sigset_t pending;
      sigset_t blocked;
      if (::sigpending(&pending) != 0 || ::sigismember(&pending, SIGXFSZ) != 0) return 5;
      if (::pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0) return 6;
      if (::sigismember(&blocked, SIGXFSZ) != 0) return 7;
      struct sigaction action {};
      if (::sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return 8;
      return 0;
    });
    expect_success(child);
    EXPECT_EQ(content(file), before);
  }
}

// Somebody clears the cache while others write: they make it anew and do not write into the void.
TEST(StoreProcesses, ARemovedCacheIsMadeAnew) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory / "cache", "abc");
  const pid_t remover = start([&] {
    for (int i = 0; i < 100; ++i) {
      std::error_code ignored;
      fs::remove_all(directory / "cache", ignored);
      ::usleep(500);
    }
    return 0;
  });
  Store store(file);
  int errors = 0;
  for (std::int64_t m = 0; m < 100; ++m) {
    try {
      store.append(std::vector{winner_of(m)});
    } catch (const Error& error) {
      // The directory may go between the lock and the file.
      EXPECT_EQ(error.status(), Status::io_error);
      ++errors;
    }
  }
  expect_success(remover);
  EXPECT_LT(errors, 100);
  store.append(std::vector{winner_of(1000)});
  EXPECT_EQ(load(file).find(key_of(1000)), (std::vector{winner_of(1000)}));
}

}  // namespace
}  // namespace switchback::autotune
