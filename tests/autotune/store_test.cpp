// SPDX-License-Identifier: Apache-2.0
// Writing files of a tuning cache: the entries that remain, waiting for locks, and obstacles in the
// file system.
#include "autotune/store/store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "autotune/entries.hpp"
#include "autotune/store/snapshot.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::content;
using test::entry_of;
using test::lines_of;
using test::newer_line;
using test::put;
using test::validated_of;
using test::winner_of;
using Names = std::vector<std::string>;

class StoreTest : public testing::Test {
 protected:
  std::vector<Added> add(const std::vector<Entry>& entries, const LockWait& wait = {}) const {
    return put_into(file, entries, wait);
  }
  // Adds an entry, which must fail with Error(io_error). Returns the message of the error.
  [[nodiscard]] std::string io_error() const {
    try {
      add({winner_of(99)}, {std::chrono::milliseconds(30), {}, {}});
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::io_error) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  [[nodiscard]] Names names() const {
    Names all;
    for (const auto& entry : fs::directory_iterator(file.parent_path()))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }

  test::TemporaryDirectory directory;
  fs::path file = cache_file(directory / "cache", "abc");
};

TEST_F(StoreTest, HasOneLineForEachKeyAndEnvironment) {
  EXPECT_EQ(file, directory / "cache" / "v1" / "abc.jsonl");
  EXPECT_TRUE(add({}).empty());
  Entry driver = winner_of(1);
  driver.env.driver = "9";
  EXPECT_EQ(add({winner_of(1), entry_of(2), driver}), std::vector(3, Added::added));
  EXPECT_EQ(content(file), lines_of({winner_of(1), entry_of(2), driver}));
  EXPECT_EQ(names(), (Names{"abc.jsonl", "abc.jsonl.lock"}));
  const fs::file_time_type written = fs::last_write_time(file);
  EXPECT_EQ(add({winner_of(1), entry_of(2)}), std::vector(2, Added::known));
  EXPECT_EQ(add({winner_of(1, Effort::quick)}), std::vector{Added::worse});
  EXPECT_EQ(add({test::doubtful(winner_of(1, Effort::thorough))}), std::vector{Added::worse});
  EXPECT_EQ(fs::last_write_time(file), written);
  // A better winner replaces its line in place. Entries of one key that are added in one call
  // become one line.
  EXPECT_EQ(add({winner_of(1, Effort::thorough), validated_of(1, 8, "wrong"), winner_of(3)}),
            std::vector(3, Added::added));
  Entry both = winner_of(1, Effort::thorough);
  both.validated = validated_of(1, 8, "wrong").validated;
  EXPECT_EQ(content(file), lines_of({both, entry_of(2), driver, winner_of(3)}));
}

TEST_F(StoreTest, LinesThatItCannotReadStayAsTheyAre) {
  const std::string spaced = test::replaced(to_line(winner_of(7)), R"({"key":)", R"({ "key" : )");
  const std::string own = test::replaced(to_line(winner_of(8)), R"("v":1)", R"("v": 1)");
  const std::string broken = test::replaced(to_line(winner_of(1)), R"("env")", R"("nev")");
  const std::string lines = newer_line(winner_of(1)) + "\nnoise\n" + spaced + "\n" +
                            std::string("\0\xff\xfe", 3) + "\n" + own + "\n" + broken + "\n" +
                            "{\"key\":{\"m\":1";
  put(file, "\xEF\xBB\xBF\r\n" + lines);
  EXPECT_EQ(add({winner_of(1)}), std::vector{Added::added});
  EXPECT_EQ(content(file), lines + "\n" + lines_of({winner_of(1)}));
}

// A file may have several lines of one key, for example after `cat` joined two files.
TEST_F(StoreTest, RepeatedLinesBecomeOne) {
  put(file, lines_of({winner_of(1, Effort::quick), winner_of(2), winner_of(1), winner_of(2)}));
  add({validated_of(1, 8, "")});
  Entry one = winner_of(1);
  one.validated = validated_of(1, 8, "").validated;
  EXPECT_EQ(content(file), lines_of({one, winner_of(2), winner_of(2)}));
}

TEST_F(StoreTest, AnEntryThatCannotBeWrittenTouchesNothing) {
  Entry bad = winner_of(2);
  bad.winner->stats.min_ms = std::nan("");
  EXPECT_THROW(add({winner_of(1), bad}), Error);
  EXPECT_FALSE(fs::exists(directory / "cache"));
}

TEST_F(StoreTest, TakesAFileNameWithoutADirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory.path());
  put_into("mere.jsonl", std::vector{winner_of(1)});
  fs::current_path(before);
  EXPECT_EQ(content(directory / "mere.jsonl"), lines_of({winner_of(1)}));
}

TEST_F(StoreTest, SaysWhatIsInTheWay) {
  put(directory / "cache", "a file");
  EXPECT_EQ(io_error(),
            file.parent_path().string() + ": the directory cannot be created: Not a directory");
  fs::remove(directory / "cache");
  fs::create_directories(file);
  EXPECT_EQ(io_error(), file.string() + ": it is a directory");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(io_error(), file.string() + ": it is not a regular file");
  fs::remove(file);
  put(file, lines_of({winner_of(1)}));
  fs::create_directories(file.string() + ".tmp/full");
  EXPECT_EQ(io_error(), file.string() + ".tmp: it cannot be removed: Is a directory");
  EXPECT_EQ(content(file), lines_of({winner_of(1)}));
  fs::remove_all(file.string() + ".tmp");
  fs::remove(file.string() + ".lock");
  fs::create_directory(file.string() + ".lock");
  EXPECT_EQ(io_error(), file.string() + ".lock: it cannot be opened: Is a directory");
}

// Another process holds the lock: the writer gives up after a while, and nothing has changed.
TEST_F(StoreTest, NoLockIsWaitedForWithoutEnd) {
  add({winner_of(1)});
  const std::string before = content(file);
  test::HeldLock held(file);
  EXPECT_TRUE(contains(io_error(), file.string() + ".lock: another process holds"));
  // A wait for the lock can be interrupted. After a second, the writer reports what it waits for.
  std::string told;
  EXPECT_THROW(
      add({winner_of(2)}, {std::chrono::hours(1), [&](const std::string& text) { told = text; },
                           [&] { return !told.empty(); }}),
      Locked);
  EXPECT_TRUE(contains(told, "waiting for the lock"));

  // After one wait for a lock in vain, PatientWriter keeps entries in memory and waits no more.
  std::vector<std::string> warnings;
  PatientWriter writer(file, "it is lost",
                       [&](const std::string& text) { warnings.push_back(text); });
  for (std::int64_t m = 10; m < 1000; ++m)
    writer.add({winner_of(m)}, {std::chrono::milliseconds(20), {}, {}});
  writer.add({winner_of(1000)},
             {std::chrono::hours(24), {}, {}});  // takes 24 hours if it waits again
  EXPECT_EQ(writer.lost(), 991);
  EXPECT_EQ(writer.written(), 0);
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(contains(warnings.front(), "kept in memory and will be written with the next ones"));
  EXPECT_EQ(content(file), before);
  held.release();
  writer.flush({});
  EXPECT_EQ(writer.lost(), 0);
  EXPECT_EQ(writer.written(), 991);
  EXPECT_EQ(writer.error(), "");
  Snapshot snapshot;
  snapshot.add_file(file);
  EXPECT_EQ(snapshot.keys(), 992u);

  fs::remove_all(file);
  fs::create_directories(file);
  warnings.clear();
  for (std::int64_t m = 0; m < 3; ++m)
    writer.add({winner_of(m)}, {});
  EXPECT_EQ(writer.lost(), 3);
  EXPECT_EQ(warnings, Names{file.string() + ": it is a directory; it is lost"});
}

// A symbolic link is a second name of a cache file: all processes that write through it write the
// same file under the same lock.
TEST_F(StoreTest, LinksAreFollowedByAll) {
  const fs::path target = directory / "elsewhere" / "real.jsonl";
  fs::create_directories(target.parent_path());
  fs::create_directories(file.parent_path());
  fs::create_symlink("../../elsewhere/real.jsonl", file);
  add({winner_of(1)});
  add({winner_of(2)});
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_EQ(content(target), lines_of({winner_of(1), winner_of(2)}));
  EXPECT_EQ(names(), Names{"abc.jsonl"});  // the lock is next to the file that the link names
  EXPECT_TRUE(fs::exists(target.string() + ".lock"));
  fs::remove(file);
  fs::create_symlink("abc.jsonl", file);
  EXPECT_TRUE(contains(io_error(), "too many symbolic links"));
}

TEST_F(StoreTest, RewritingKeepsPermissionsAndOwner) {
  add({winner_of(1)});
  ASSERT_EQ(::chmod(file.c_str(), 0664), 0);
  constexpr uid_t other_user = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::chown(file.c_str(), other_user, other_user), 0);
    ASSERT_EQ(::chown(file.parent_path().c_str(), other_user, other_user), 0);
  }
  add({winner_of(2)});
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0664u);
  EXPECT_EQ(status.st_uid, is_root ? other_user : ::geteuid());
}

// Root neither reads nor writes files that another user can have put there.
TEST_F(StoreTest, RootTrustsNoFileThatOthersCanHavePutThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make such files";
  constexpr uid_t other_user = 65534;
  add({winner_of(1)});
  const std::string before = content(file);
  const auto refused = [&](const std::string& why) {
    EXPECT_TRUE(contains(io_error(), why));
    Snapshot snapshot;
    snapshot.add_file(file);
    EXPECT_EQ(snapshot.lines(), 0);
    ASSERT_EQ(snapshot.warnings().size(), 1u);
    EXPECT_TRUE(contains(snapshot.warnings()[0].what, why));
  };
  ASSERT_EQ(::chown(file.c_str(), other_user, other_user), 0);
  refused("it belongs to user 65534");
  ASSERT_EQ(::chown(file.parent_path().c_str(), other_user, other_user), 0);
  fs::permissions(file.parent_path(), fs::perms::all);
  refused("it belongs to user 65534");
  EXPECT_EQ(content(file), before);
  fs::permissions(file.parent_path(), fs::perms::others_write, fs::perm_options::remove);
  // The file's owner is the directory's owner, and no other user can write there.
  add({winner_of(2)});

  put(directory / "victim", before);
  fs::remove(file);
  fs::create_symlink(directory / "victim", file);
  ASSERT_EQ(::lchown(file.c_str(), other_user, other_user), 0);
  refused("is a symbolic link that belongs to user 65534");
  EXPECT_EQ(content(directory / "victim"), before);
  ASSERT_EQ(::lchown(file.c_str(), 0, 0), 0);
  add({winner_of(2)});
}

TEST(DefaultDirectory, IsTheFirstThatIsSet) {
  test::Variable own("SWITCHBACK_TUNE_CACHE", {}), xdg("XDG_CACHE_HOME", {}), home("HOME", {});
  EXPECT_EQ(default_cache_directory(), fs::path());
  home.set("/h");
  EXPECT_EQ(default_cache_directory(), fs::path("/h") / ".cache" / "switchback");
  xdg.set("relative");
  EXPECT_EQ(default_cache_directory(), fs::path("/h") / ".cache" / "switchback");
  xdg.set("/x");
  EXPECT_EQ(default_cache_directory(), fs::path("/x") / "switchback");
  own.set("");
  EXPECT_EQ(default_cache_directory(), fs::path("/x") / "switchback");
  own.set("own");
  EXPECT_EQ(default_cache_directory(), fs::path("own"));
}

}  // namespace
}  // namespace switchback::autotune
