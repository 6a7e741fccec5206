// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autotune/records.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::fields_of;
using test::key_of;
using test::put;
using test::record_of;
using test::replaced;
using test::winner_of;
using test::with_crc;

std::string lines_of(const std::vector<Record>& records) {
  std::string lines;
  for (const Record& record : records)
    lines += to_line(record) + "\n";
  return lines;
}

std::string newer_line(std::int64_t m) {
  return with_crc(replaced(fields_of(winner_of(m)), R"("v":1)", R"("v":2)")) + "\n";
}

/// What the call says, which must throw an Error(io_error).
template <class Call>
std::string io_error(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::io_error) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class StoreTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(file.parent_path()))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  test::TemporaryDirectory directory;
  fs::path file = cache_file(directory / "cache", "abc");
  Store store{file};
};

using Names = std::vector<std::string>;

TEST_F(StoreTest, AppendsLinesAndCreatesWhatIsMissing) {
  EXPECT_EQ(file, directory / "cache" / "v1" / "abc" / "tune.jsonl");
  EXPECT_EQ(store.file(), file);
  store.append({});
  EXPECT_FALSE(fs::exists(file.parent_path()));
  const std::vector<Record> records = {winner_of(1), record_of(RecordType::sample, 2)};
  store.append(records);
  EXPECT_EQ(content(file), lines_of(records));
  store.append(records);
  EXPECT_EQ(content(file), lines_of(records) + lines_of(records));
  EXPECT_EQ(names(), (Names{"tune.jsonl", "tune.jsonl.lock"}));
}

TEST_F(StoreTest, TakesAFileNameWithoutADirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory.path());
  const Record record = winner_of(1);
  Store("mere.jsonl").append(std::span(&record, 1));
  EXPECT_EQ(Store("mere.jsonl").compact(true), 0);
  Store("mere.jsonl").replace(std::span(&record, 1));
  fs::current_path(before);
  EXPECT_EQ(content(directory / "mere.jsonl"), lines_of({record}));
}

TEST_F(StoreTest, ARecordThatCannotBeWrittenTouchesNothing) {
  std::vector<Record> records = {winner_of(1), winner_of(2)};
  records[1].stats.min_ms = std::nan("");
  EXPECT_THROW(store.append(records), Error);
  EXPECT_FALSE(fs::exists(directory / "cache"));
  put(file, "x");
  EXPECT_THROW(store.append(records), Error);
  EXPECT_THROW(store.replace(records), Error);
  EXPECT_EQ(content(file), "x");
}

TEST_F(StoreTest, AppendsToWhateverFileIsThere) {
  for (const std::string& foreign :
       {std::string(), std::string("\0\xff\xfe binary", 10), std::string(3'000'000, 'x'),
        std::string("\xEF\xBB\xBF"), std::string("a\r\nb\r\n")}) {
    put(file, foreign);
    const std::vector<Record> records = {winner_of(1)};
    store.append(records);
    const bool ended = foreign.empty() || foreign.back() == '\n';
    EXPECT_EQ(content(file), foreign + (ended ? "" : "\n") + lines_of(records));
    Snapshot snapshot;
    snapshot.add_file(file);
    EXPECT_EQ(snapshot.find(key_of(1)), records);
  }
}

TEST_F(StoreTest, SaysWhatIsInTheWay) {
  const std::vector<Record> records = {winner_of(1)};
  const auto append = [&] { store.append(records); };
  const auto expect_all = [&](const std::string& message) {
    EXPECT_EQ(io_error(append), message);
    EXPECT_EQ(io_error([&] { store.replace(records); }), message);
  };
  put(directory / "cache", "a file");
  expect_all(file.parent_path().string() + ": the directory cannot be created: Not a directory");
  EXPECT_EQ(content(directory / "cache"), "a file");
  fs::remove(directory / "cache");

  fs::create_directories(file / "full");
  EXPECT_EQ(io_error(append), file.string() + ": it cannot be opened: Is a directory");
  EXPECT_EQ(io_error([&] { store.compact(true); }), file.string() + ": it is a directory");
  EXPECT_EQ(io_error([&] { store.replace(records); }), file.string() + ": it is a directory");
  EXPECT_TRUE(fs::is_directory(file / "full"));
  fs::remove_all(file.parent_path());

  fs::create_directories(file.parent_path());
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(io_error(append), file.string() + ": it is no regular file");
  EXPECT_EQ(io_error([&] { store.compact(true); }), file.string() + ": it is no regular file");
  fs::remove(file);

  fs::remove(file.string() + ".lock");
  fs::create_directory(file.string() + ".lock");
  expect_all(file.string() + ".lock: it cannot be opened: Is a directory");
}

TEST_F(StoreTest, AReadOnlyDirectoryIsAnErrorToo) {
  if (::geteuid() == 0) GTEST_SKIP() << "nothing is read only for root";
  fs::create_directories(file.parent_path());
  fs::permissions(file.parent_path(), fs::perms::owner_read | fs::perms::owner_exec);
  const std::vector<Record> records = {winner_of(1)};
  EXPECT_EQ(io_error([&] { store.append(records); }),
            file.string() + ".lock: it cannot be opened: Permission denied");
  fs::permissions(file.parent_path(), fs::perms::owner_all);
}

TEST_F(StoreTest, CompactionKeepsWhatIsWorthKeeping) {
  const std::string early = "2026-01-01T00:00:00Z";
  const std::string late = "2026-02-01T00:00:00Z";
  Record other_kernels = winner_of(1, Effort::cut, early, 24);
  other_kernels.env.kernels = "8";
  Record other_driver = winner_of(1, Effort::cut, early, 24);
  other_driver.env.driver = "9";
  const Record sample = record_of(RecordType::sample, 1);
  const Record fail = record_of(RecordType::fail, 1, Effort::normal, early, 8);
  Record fail_again = fail;
  fail_again.time = late;
  const auto line = [](const Record& record) { return lines_of({record}); };
  struct Step {
    std::string line;
    bool kept;
  };
  const std::vector<Step> steps = {
      {line(winner_of(2, Effort::thorough)), false},  // buried below
      {line(winner_of(1, Effort::thorough, early)), true},
      {line(winner_of(1, Effort::normal, late)), false},
      {"garbage\n", false},
      {newer_line(1), true},
      {line(sample), false},  // repeated below
      {line(record_of(RecordType::tombstone, 2)), false},
      {line(record_of(RecordType::sample, 2)), false},
      {line(fail), false},
      {line(other_kernels), true},
      {line(other_driver), false},
      {line(winner_of(3, Effort::thorough, late, 8)), false},  // fails below
      {line(record_of(RecordType::tombstone, 2)), true},
      {line(winner_of(2, Effort::cut)), true},
      {line(sample), true},
      {line(winner_of(3, Effort::quick, early, 16)), true},
      {line(fail_again), true},
      {line(record_of(RecordType::fail, 3, Effort::normal, early, 8)), true},
      {line(record_of(RecordType::sample, 4)), true},
      {line(winner_of(5, Effort::quick, early)), true},
      {line(test::doubtful(winner_of(5, Effort::thorough, late, 8))), false},
      {line(test::doubtful(winner_of(6, Effort::quick, early))), false},
      {line(test::doubtful(winner_of(6, Effort::quick, late, 8))), true},
      {"\n", false}};
  std::string text;
  std::string expected;
  std::string expected_without_samples;
  std::int64_t dropped = -1;  // the blank line is none
  std::int64_t dropped_samples = 0;
  for (const Step& step : steps) {
    text += step.line;
    if (step.kept) expected += step.line;
    dropped += step.kept ? 0 : 1;
    const bool is_sample = step.line.find("\"sample\"") != std::string::npos;
    if (step.kept && !is_sample) expected_without_samples += step.line;
    if (step.kept && is_sample) ++dropped_samples;
  }
  put(file, text);
  fs::permissions(file, fs::perms(0640));
  EXPECT_EQ(store.compact(true), dropped);
  EXPECT_EQ(content(file), expected);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0640));
  EXPECT_EQ(names(), (Names{"tune.jsonl", "tune.jsonl.lock"}));
  EXPECT_EQ(store.compact(true), 0);
  EXPECT_EQ(content(file), expected);
  EXPECT_EQ(store.compact(false), dropped_samples);
  EXPECT_EQ(content(file), expected_without_samples);
}

TEST_F(StoreTest, CompactionKeepsTheBytesOfALine) {
  const std::string spaced =
      replaced(fields_of(winner_of(1)), R"({"v":1,)", R"({ "v": 1, "new":[1],)");
  put(file, "\xEF\xBB\xBF" + with_crc(spaced) + "\r\n" + "x\n" + to_line(winner_of(2)));
  EXPECT_EQ(store.compact(true), 1);
  EXPECT_EQ(content(file), with_crc(spaced) + "\n" + lines_of({winner_of(2)}));
}

TEST_F(StoreTest, CompactionLeavesAloneWhatIsNotThere) {
  EXPECT_EQ(store.compact(true), 0);
  EXPECT_FALSE(fs::exists(directory / "cache"));
}

TEST_F(StoreTest, ALeftoverOfAKilledCompactionIsNoObstacle) {
  put(file, lines_of({winner_of(1)}) + "x\n");
  put(file.string() + ".tmp", "half a li");
  EXPECT_EQ(store.compact(true), 1);
  EXPECT_EQ(content(file), lines_of({winner_of(1)}));
  EXPECT_EQ(names(), (Names{"tune.jsonl", "tune.jsonl.lock"}));
}

TEST_F(StoreTest, ReplaceKeepsNewerLinesAlone) {
  put(file, lines_of({winner_of(1)}) + newer_line(5) + "garbage\n");
  store.replace(std::vector{winner_of(2), winner_of(3)});
  EXPECT_EQ(content(file), lines_of({winner_of(2), winner_of(3)}) + newer_line(5));
  store.replace({});
  EXPECT_EQ(content(file), newer_line(5));
  fs::remove_all(directory / "cache");
  store.replace(std::vector{winner_of(2)});
  EXPECT_EQ(content(file), lines_of({winner_of(2)}));
}

TEST_F(StoreTest, UpdateSeesTheRecordsAndReplacesThem) {
  put(file, lines_of({winner_of(1)}) + "garbage\n" + newer_line(5) +
                lines_of({record_of(RecordType::sample, 1)}));
  store.update([](std::vector<Record> records) {
    EXPECT_EQ(records, (std::vector{winner_of(1), record_of(RecordType::sample, 1)}));
    records[0] = winner_of(7);
    return records;
  });
  const std::string expected =
      lines_of({winner_of(7), record_of(RecordType::sample, 1)}) + newer_line(5);
  EXPECT_EQ(content(file), expected);
  EXPECT_THROW(store.update([](const std::vector<Record>&) -> std::vector<Record> {
    throw Error(Status::invalid_argument, "no");
  }),
               Error);
  EXPECT_EQ(content(file), expected);
  store.append(std::vector{winner_of(8)});  // and the lock is free again
  EXPECT_EQ(content(file), expected + lines_of({winner_of(8)}));
}

// Somebody else's lock: it is given up after a while, and nothing has changed.
TEST_F(StoreTest, ALockOfAnotherIsNotWaitedForForever) {
  const std::vector<Record> records = {winner_of(1)};
  store.append(records);
  const int held = ::open((file.string() + ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  store.set_wait({std::chrono::milliseconds(30), {}, {}});
  const std::string before = content(file);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { store.append(records); }, [&] { store.compact(false); },
           [&] { store.replace(records); }, [&] { store.update([](auto all) { return all; }); }}) {
    try {
      call();
      FAIL() << "nothing was thrown";
    } catch (const Locked& locked) {
      EXPECT_EQ(locked.status(), Status::io_error);
      EXPECT_NE(std::string(locked.what()).find(file.string() + ".lock: another process holds"),
                std::string::npos)
          << locked.what();
    }
  }
  EXPECT_EQ(content(file), before);
  // A wait can be ended, and says what it is for after a second.
  int asked = 0;
  store.set_wait({std::chrono::hours(1), {}, [&] { return ++asked > 3; }});
  EXPECT_THROW(store.append(records), Locked);
  std::string told;
  store.set_wait({std::chrono::hours(1), [&](const std::string& text) { told = text; },
                  [&] { return !told.empty(); }});
  EXPECT_THROW(store.append(records), Locked);
  EXPECT_NE(told.find("waiting for another process"), std::string::npos) << told;
  ::close(held);
  store.append(records);
  EXPECT_EQ(content(file), before + before);
}

// A link is a second name: whoever writes by it writes the same file under the same lock.
TEST_F(StoreTest, LinksAreFollowedByAll) {
  const fs::path target = directory / "elsewhere" / "real.jsonl";
  fs::create_directories(target.parent_path());
  fs::create_directories(file.parent_path());
  fs::create_symlink("../../../elsewhere/real.jsonl", file);
  store.append(std::vector{winner_of(1, Effort::quick)});
  store.append(std::vector{winner_of(1)});
  EXPECT_EQ(store.compact(true), 1);
  store.update([](std::vector<Record> records) {
    records.push_back(winner_of(2));
    return records;
  });
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_EQ(content(target), lines_of({winner_of(1), winner_of(2)}));
  EXPECT_EQ(names(), Names{"tune.jsonl"});  // the lock is beside the file
  EXPECT_TRUE(fs::exists(target.string() + ".lock"));

  fs::remove(file);
  fs::create_symlink("tune.jsonl", file);
  EXPECT_NE(
      io_error([&] { store.append(std::vector{winner_of(1)}); }).find("too many symbolic links"),
      std::string::npos);
}

TEST_F(StoreTest, RewritingKeepsPermissionsAndOwner) {
  store.append(std::vector{winner_of(1, Effort::quick), winner_of(1)});
  ASSERT_EQ(::chmod(file.c_str(), 0664), 0);
  constexpr uid_t somebody = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::chown(file.c_str(), somebody, somebody), 0);
    ASSERT_EQ(::chown(file.parent_path().c_str(), somebody, somebody), 0);
  }
  EXPECT_EQ(store.compact(true), 1);
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0664u);
  EXPECT_EQ(status.st_uid, is_root ? somebody : ::geteuid());
}

// What another user can have put there is neither read nor written by root.
TEST_F(StoreTest, RootTrustsNoFileThatOthersCanHavePutThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make such files";
  constexpr uid_t somebody = 65534;
  store.append(std::vector{winner_of(1)});
  const std::string before = content(file);
  const auto refused = [&](const std::string& why) {
    EXPECT_NE(io_error([&] { store.append(std::vector{winner_of(2)}); }).find(why),
              std::string::npos);
    EXPECT_NE(io_error([&] { store.update([](auto all) { return all; }); }).find(why),
              std::string::npos);
    Snapshot snapshot;
    snapshot.add_file(file);
    EXPECT_EQ(snapshot.lines(), 0);
    ASSERT_EQ(snapshot.warnings().size(), 1u);
    EXPECT_NE(snapshot.warnings()[0].what.find(why), std::string::npos);
  };
  ASSERT_EQ(::chown(file.c_str(), somebody, somebody), 0);
  refused("it belongs to user 65534");
  ASSERT_EQ(::chown(file.parent_path().c_str(), somebody, somebody), 0);
  fs::permissions(file.parent_path(), fs::perms::all);
  refused("it belongs to user 65534");
  EXPECT_EQ(content(file), before);
  fs::permissions(file.parent_path(), fs::perms::others_write, fs::perm_options::remove);
  store.append(std::vector{winner_of(2)});  // of the directory's owner, and of nobody else

  put(directory / "victim", before);
  fs::remove(file);
  fs::create_symlink(directory / "victim", file);
  ASSERT_EQ(::lchown(file.c_str(), somebody, somebody), 0);
  refused("is a symbolic link of user 65534");
  EXPECT_EQ(content(directory / "victim"), before);
  ASSERT_EQ(::lchown(file.c_str(), 0, 0), 0);
  store.append(std::vector{winner_of(2)});
}

class DefaultDirectory : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"SWITCHBACK_TUNE_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      if (const char* const value = std::getenv(name)) before.emplace_back(name, value);
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* const name : {"SWITCHBACK_TUNE_CACHE", "XDG_CACHE_HOME", "HOME"})
      ::unsetenv(name);
    for (const auto& [name, value] : before)
      ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<std::pair<std::string, std::string>> before;
};

TEST_F(DefaultDirectory, IsTheFirstThatIsSet) {
  EXPECT_EQ(default_cache_directory(), fs::path());
  ::setenv("HOME", "/h", 1);
  EXPECT_EQ(default_cache_directory(), fs::path("/h") / ".cache" / "switchback");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_cache_directory(), fs::path("/h") / ".cache" / "switchback");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(default_cache_directory(), fs::path("/x") / "switchback");
  ::setenv("SWITCHBACK_TUNE_CACHE", "", 1);
  EXPECT_EQ(default_cache_directory(), fs::path("/x") / "switchback");
  ::setenv("SWITCHBACK_TUNE_CACHE", "own", 1);
  EXPECT_EQ(default_cache_directory(), fs::path("own"));
}

}  // namespace
}  // namespace switchback::autotune
