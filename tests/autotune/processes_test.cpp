// SPDX-License-Identifier: Apache-2.0
// The tuning cache with several processes: several write, some are killed, the disk is full or
// read-only. Children work between fork() and _exit() and report by their exit status. This program
// has no threads.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "autotune/entries.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/store/store.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::key_of;
using test::lines_of;
using test::put;
using test::winner_of;

/// Runs `work` in a child. The exit status of the child is the result of `work`, or 99 if it
/// throws.
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

/// Runs `work` in a child process and kills it at its nth entry to, or exit from, a system call.
/// Returns false if the child ended before that.
template <class Work>
bool killed_at(int n, Work work) {
  const pid_t child = start([&] {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return 98;
    ::raise(SIGSTOP);
    return work();
  });
  int status = wait_for(child);
  for (int i = 0; i < n && WIFSTOPPED(status); ++i) {
    EXPECT_EQ(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
    status = wait_for(child);
  }
  if (!WIFSTOPPED(status)) {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    return false;
  }
  ::kill(child, SIGKILL);
  wait_for(child);
  return true;
}

Snapshot& load(const fs::path& file, Snapshot& snapshot) {
  snapshot.add_file(file);
  return snapshot;
}

TEST(StoreProcesses, WritersAtOnceLoseNothingAndReadersSeeWholeFiles) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  constexpr std::int64_t writers = 8, entries = 20;
  std::vector<pid_t> children;
  for (std::int64_t w = 0; w < writers; ++w)
    children.push_back(start([&, w] {
      for (std::int64_t m = 0; m < entries; ++m) {
        put_into(file, std::vector{winner_of(w * entries + m)});
        put_into(file,
                 // All with one key.
                 std::vector{test::validated_of(-1, w * entries + m, "wrong")});
      }
      return 0;
    }));
  // Readers take no lock, and still see only whole files.
  std::int64_t before = 0;
  for (int i = 0; i < 40; ++i) {
    Snapshot snapshot;
    EXPECT_EQ(load(file, snapshot).skipped(), 0);
    EXPECT_GE(snapshot.lines(), before);
    before = snapshot.lines();
    ::usleep(1000);
  }
  for (const pid_t child : children)
    expect_success(child);
  Snapshot snapshot;
  EXPECT_EQ(load(file, snapshot).lines(), writers * entries + 1);
  for (std::int64_t m = 0; m < writers * entries; ++m)
    ASSERT_EQ(snapshot.find(key_of(m)), std::vector{winner_of(m)}) << m;
  ASSERT_EQ(snapshot.find(key_of(-1)).size(), 1u);
  EXPECT_EQ(snapshot.find(key_of(-1))[0].validated.size(),
            static_cast<std::size_t>(writers * entries));
}

TEST(StoreProcesses, AWriterKilledAtAnyStepLeavesTheOldFileOrTheNew) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  const std::string old_text = lines_of({winner_of(1), winner_of(2, Effort::quick)}) + "noise\n";
  const std::string new_text =
      lines_of({winner_of(1), winner_of(2)}) + "noise\n" + lines_of({winner_of(3)});
  bool saw_old = false, saw_new = false, saw_leftover = false;
  int steps = 0;
  for (bool killed = true; killed; ++steps) {
    put(file, old_text);
    killed = killed_at(steps, [&] {
      put_into(file, std::vector{winner_of(2), winner_of(3)});
      return 0;
    });
    const std::string text = content(file);
    EXPECT_TRUE(text == old_text || text == new_text) << "step " << steps << ": " << text;
    saw_old = saw_old || text == old_text;
    saw_new = saw_new || (killed && text == new_text);
    saw_leftover = saw_leftover || fs::exists(file.string() + ".tmp");
    // The lock of the dead process is free, and its leftover files do not disturb other processes.
    put_into(file, std::vector{winner_of(2), winner_of(3)}, {std::chrono::seconds(0), {}, {}});
    EXPECT_EQ(content(file), new_text);
    ASSERT_LT(steps, 10'000);
  }
  EXPECT_GT(steps, 20);
  EXPECT_TRUE(saw_old);
  EXPECT_TRUE(saw_new);
  EXPECT_TRUE(saw_leftover);
}

// At the limit of the file size the system sends SIGXFSZ, which ends a program that does not handle
// it. A library must not ignore that signal for the whole process.
TEST(StoreProcesses, AFullDiskIsAnErrorAndChangesNothing) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  put_into(file, std::vector{winner_of(1), winner_of(2)});
  const std::string before = content(file);
  for (const std::size_t limit :
       {std::size_t{0}, std::size_t{1}, before.size() / 2, before.size(), before.size() + 10}) {
    expect_success(start([&] {
      ::signal(SIGXFSZ, SIG_DFL);
      const rlimit size{limit, limit};
      if (::setrlimit(RLIMIT_FSIZE, &size) != 0) return 1;
      try {
        put_into(file, std::vector{winner_of(3)});
        return 2;
      } catch (const Error& error) {
        if (error.status() != Status::io_error) return 3;
        if (std::string(error.what()).find(file.string() + ".tmp: it cannot be written: ") != 0)
          return 4;
      }
      if (content(file) != before || fs::exists(file.string() + ".tmp")) return 5;
      // After the failed write, SIGXFSZ is not pending and not blocked, and its action is
      // unchanged.
      sigset_t pending;
      sigset_t blocked;
      if (::sigpending(&pending) != 0 || ::sigismember(&pending, SIGXFSZ) != 0) return 6;
      if (::pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0) return 7;
      if (::sigismember(&blocked, SIGXFSZ) != 0) return 8;
      struct sigaction action {};
      if (::sigaction(SIGXFSZ, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return 9;
      return 0;
    }));
    EXPECT_EQ(content(file), before);
  }
  put_into(file, std::vector{winner_of(3)});  // without the limit, the write succeeds
  EXPECT_EQ(content(file), before + lines_of({winner_of(3)}));
}

TEST(StoreProcesses, AReadOnlyDirectoryIsReadAndNotWritten) {
  const test::TemporaryDirectory directory;
  const fs::path file = cache_file(directory.path(), "abc");
  put_into(file, std::vector{winner_of(1)});
  const std::string before = content(file);
  constexpr auto read_only = fs::perms(0555);
  fs::permissions(directory.path(), read_only);
  fs::permissions(file.parent_path(), read_only);
  expect_success(start([&] {
    // Root may write anywhere, so the child continues as an unprivileged user.
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 1;
    Snapshot snapshot;
    if (load(file, snapshot).lines() != 1 || !snapshot.warnings().empty()) return 2;
    try {
      put_into(file, std::vector{winner_of(2)});
      return 3;
    } catch (const Error& error) {
      return error.status() == Status::io_error &&
                     std::string(error.what()).find("Permission denied") != std::string::npos
                 ? 0
                 : 4;
    }
  }));
  fs::permissions(directory.path(), fs::perms::owner_all);
  fs::permissions(file.parent_path(), fs::perms::owner_all);
  EXPECT_EQ(content(file), before);
}

// A cache directory that is removed while other processes write is created again. No process writes
// to a file that other processes cannot find.
TEST(StoreProcesses, ARemovedCacheIsMadeAgain) {
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
  int errors = 0;
  for (std::int64_t m = 0; m < 100; ++m) {
    try {
      put_into(file, std::vector{winner_of(m)});
    } catch (const Error& error) {
      // The directory may be removed between taking the lock and writing the file.
      EXPECT_EQ(error.status(), Status::io_error);
      ++errors;
    }
  }
  expect_success(remover);
  EXPECT_LT(errors, 100);
  put_into(file, std::vector{winner_of(1000)});
  Snapshot snapshot;
  EXPECT_EQ(load(file, snapshot).find(key_of(1000)), (std::vector{winner_of(1000)}));
}

}  // namespace
}  // namespace switchback::autotune
