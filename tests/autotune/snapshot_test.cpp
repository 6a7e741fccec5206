// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/snapshot.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "autotune/records.hpp"
#include "autotune/store/store.hpp"
#include "autotune/tune.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::autotune {
namespace {

namespace fs = std::filesystem;
using test::fields_of;
using test::key_of;
using test::put;
using test::record_of;
using test::replaced;
using test::winner_of;
using test::with_crc;

std::string line_of(const Record& record) {
  return to_line(record) + "\n";
}

class SnapshotTest : public testing::Test {
 protected:
  [[nodiscard]] Snapshot load() const {
    Snapshot snapshot;
    snapshot.add_file(file);
    return snapshot;
  }
  [[nodiscard]] std::vector<std::string> warnings_of(const Snapshot& snapshot) const {
    std::vector<std::string> all;
    for (const Warning& warning : snapshot.warnings()) {
      EXPECT_EQ(warning.file, file);
      all.push_back(fmt::format("{}: {}", warning.line, warning.what));
    }
    return all;
  }

  test::TemporaryDirectory directory;
  fs::path file = directory / "tune.jsonl";
};

using Texts = std::vector<std::string>;

TEST_F(SnapshotTest, FindsWhatDecidesAboutAKeyInOrder) {
  const std::vector<Record> records = {winner_of(1),
                                       record_of(RecordType::sample, 1),
                                       winner_of(2),
                                       record_of(RecordType::fail, 1),
                                       record_of(RecordType::tombstone, 1),
                                       record_of(RecordType::sample, 3)};
  std::string text;
  for (const Record& record : records)
    text += line_of(record);
  put(file, text);
  const Snapshot snapshot = load();
  EXPECT_EQ(snapshot.lines(), 6);
  EXPECT_EQ(snapshot.skipped(), 0);
  EXPECT_EQ(warnings_of(snapshot), Texts{});
  EXPECT_EQ(snapshot.find(key_of(1)), (std::vector{records[0], records[3], records[4]}));
  EXPECT_EQ(snapshot.find(key_of(2)), (std::vector{records[2]}));
  EXPECT_TRUE(snapshot.find(key_of(3)).empty());
  EXPECT_TRUE(snapshot.find(key_of(4)).empty());
  EXPECT_EQ(snapshot.key_hashes(), (Texts{key_of(1).sha, key_of(2).sha}));
  std::vector<Record> all;
  snapshot.for_each([&](const Record& record) { all.push_back(record); });
  EXPECT_EQ(all, records);

  // A copy stands on its own feet.
  Snapshot copy;
  {
    const Snapshot moved = load();
    copy = moved;
  }
  EXPECT_EQ(copy.find(key_of(2)), (std::vector{records[2]}));
}

TEST_F(SnapshotTest, AddsFilesBehindEachOther) {
  put(file, line_of(winner_of(1)));
  put(directory / "other.jsonl", line_of(winner_of(1, Effort::quick)) + line_of(winner_of(2)));
  Snapshot snapshot = load();
  snapshot.add_file(directory / "missing.jsonl");
  snapshot.add_file(directory / "other.jsonl");
  EXPECT_EQ(snapshot.lines(), 3);
  EXPECT_EQ(warnings_of(snapshot), Texts{});
  EXPECT_EQ(snapshot.find(key_of(1)), (std::vector{winner_of(1), winner_of(1, Effort::quick)}));
}

TEST_F(SnapshotTest, ComparesTheTextOfKeysAndNotTheirHashesAlone) {
  put(file, line_of(winner_of(1)));
  Key impostor = key_of(2);
  impostor.sha = key_of(1).sha;
  EXPECT_TRUE(load().find(impostor).empty());
  Key odd = key_of(1);
  odd.sha = "not a hash";
  EXPECT_TRUE(load().find(odd).empty());
}

TEST_F(SnapshotTest, SkipsBadLinesWithTheirPlace) {
  std::string changed = to_line(winner_of(3));
  changed[changed.find("512")] = '6';
  const std::string fields = fields_of(winner_of(4));
  put(file, line_of(winner_of(1)) + changed + "\n" + fields + "}\n" + "\n  \n" +
                with_crc(replaced(fields, R"("v":1)", R"("v":2)")) + "\nhello\n" +
                line_of(winner_of(2)) + to_line(winner_of(5)).substr(0, 300));
  const Snapshot snapshot = load();
  EXPECT_EQ(snapshot.lines(), 2);
  EXPECT_EQ(snapshot.skipped(), 5);
  EXPECT_EQ(warnings_of(snapshot),
            (Texts{"2: the CRC does not match", "3: it has no CRC",
                   "6: schema version 2; this library reads version 1",
                   "7: it is no record in JSON", "9: it is cut short: it is no record in JSON"}));
  EXPECT_EQ(describe(snapshot.warnings()[0]), file.string() + ":2: the CRC does not match");
  EXPECT_EQ(snapshot.find(key_of(1)).size(), 1u);
  EXPECT_EQ(snapshot.find(key_of(2)).size(), 1u);
}

// Whole by its CRC and ours by its beginning: what else is wrong shows when it is parsed.
TEST_F(SnapshotTest, LeavesOutRecordsThatTurnOutBad) {
  put(file, line_of(winner_of(1)) + with_crc(replaced(fields_of(winner_of(1)), "0.125", "null")) +
                "\n" + line_of(winner_of(1, Effort::quick)));
  const Snapshot snapshot = load();
  std::vector<Warning> warnings;
  EXPECT_EQ(snapshot.find(key_of(1), &warnings),
            (std::vector{winner_of(1), winner_of(1, Effort::quick)}));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(describe(warnings[0]), file.string() + ":2: field 'median_ms' is no number");
  int count = 0;
  snapshot.for_each([&](const Record&) { ++count; }, &warnings);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(warnings.size(), 2u);
}

TEST_F(SnapshotTest, ReadsLinesInAnotherForm) {
  const std::string fields = fields_of(winner_of(1));
  const std::string spaced = replaced(fields, R"({"v":1,)", R"({ "v": 1, )");
  const std::string moved = replaced(fields, R"("v":1,)", "") + R"(,"v":1)";
  put(file, with_crc(spaced) + "\n" + line_of(winner_of(2)) + with_crc(moved) + "\n");
  const Snapshot snapshot = load();
  EXPECT_EQ(warnings_of(snapshot), Texts{});
  EXPECT_EQ(snapshot.find(key_of(1)), (std::vector{winner_of(1), winner_of(1)}));
  EXPECT_EQ(snapshot.key_hashes(), (Texts{key_of(1).sha, key_of(2).sha}));
}

TEST_F(SnapshotTest, ReadsWhatOtherSystemsEditorsMadeOfAFile) {
  put(file, "\xEF\xBB\xBF" + to_line(winner_of(1)) + "\r\n" + to_line(winner_of(2)) + "\r\n\r\n" +
                to_line(winner_of(3)));
  const Snapshot snapshot = load();
  EXPECT_EQ(warnings_of(snapshot), Texts{});
  for (const std::int64_t m : {1, 2, 3})
    EXPECT_EQ(snapshot.find(key_of(m)), (std::vector{winner_of(m)}));
  std::vector<Warning> warnings;
  put(file, "\xEF\xBB\xBF" + line_of(winner_of(1)) + "x\r\n");
  EXPECT_EQ(warnings_of(load()), (Texts{"2: it is no record in JSON"}));
}

TEST_F(SnapshotTest, SaysWhatIsInTheWayOfAFile) {
  EXPECT_EQ(warnings_of(load()), Texts{});  // none there
  fs::create_directory(file);
  EXPECT_EQ(warnings_of(load()), (Texts{"0: it is a directory"}));
  EXPECT_EQ(describe(load().warnings()[0]), file.string() + ": it is a directory");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(warnings_of(load()), (Texts{"0: it is no regular file"}));
  fs::remove(file);
  put(file, "");
  EXPECT_EQ(warnings_of(load()), Texts{});
  put(file, "x");
  Snapshot below;
  below.add_file(file / "tune.jsonl");
  ASSERT_EQ(below.warnings().size(), 1u);
  EXPECT_EQ(below.warnings()[0].what, "it cannot be opened: Not a directory");
  fs::remove(file);
  put(file, "");
  fs::resize_file(file, (std::uintmax_t{4} << 30) + 1);  // sparse
  EXPECT_EQ(warnings_of(load()),
            (Texts{"0: it has 4294967297 bytes; a cache has at most 4294967296"}));
}

TEST_F(SnapshotTest, FindsRecordsAmongAnything) {
  std::string bytes;
  std::uint32_t state = 7;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 1664525u + 1013904223u;
    bytes += static_cast<char>(state >> 24);
  }
  const std::string braces = std::string(2'000'000, '{');
  put(file, bytes + "\n" + line_of(winner_of(1)) + std::string(1000, '\0') + "\n" + braces + "\n" +
                line_of(winner_of(2)) + std::string(3'000'000, ' ') + "\n" + line_of(winner_of(3)) +
                std::string(500, '\0'));
  const Snapshot snapshot = load();
  EXPECT_EQ(snapshot.lines(), 3);
  for (const std::int64_t m : {1, 2, 3})
    EXPECT_EQ(snapshot.find(key_of(m)), (std::vector{winner_of(m)}));
  // Some 800 of the random lines, of which the first are told.
  EXPECT_GT(snapshot.skipped(), 400);
  EXPECT_EQ(snapshot.warnings().size(), Snapshot::max_warnings);
}

// Wherever a writer was killed: what was there before is read, and what is appended then too.
TEST_F(SnapshotTest, TornTailsHurtNothingElse) {
  const std::string before = line_of(winner_of(1)) + line_of(winner_of(2));
  const std::string last = line_of(winner_of(3));
  for (std::size_t size = 0; size <= last.size(); ++size) {
    put(file, before + last.substr(0, size));
    const bool whole = size + 1 >= last.size();  // but for the newline
    const auto check = [&](const Snapshot& snapshot, std::int64_t lines) {
      ASSERT_EQ(snapshot.lines(), lines + (whole ? 1 : 0)) << size;
      ASSERT_EQ(snapshot.skipped(), size > 0 && !whole ? 1 : 0) << size;
      ASSERT_EQ(snapshot.find(key_of(1)), (std::vector{winner_of(1)})) << size;
      ASSERT_EQ(snapshot.find(key_of(2)), (std::vector{winner_of(2)})) << size;
      ASSERT_EQ(snapshot.find(key_of(3)).size(), whole ? 1u : 0u) << size;
    };
    check(load(), 2);
    const Record next = winner_of(4);
    Store(file).append(std::span(&next, 1));
    const bool torn = size > 0 && size < last.size();
    ASSERT_EQ(test::content(file),
              before + last.substr(0, size) + (torn ? "\n" : "") + line_of(next));
    check(load(), 3);
    ASSERT_EQ(load().find(key_of(4)), (std::vector{next})) << size;
  }
}

const Record* best_of(const std::vector<Record>& records) {
  return Snapshot::best(records, [](const Record&) { return true; });
}

TEST(SnapshotBest, TakesMostEffortThenTheLatestThenTheSmallerText) {
  const std::string january = "2026-01-01T00:00:00Z";
  const std::string february = "2026-02-01T00:00:00Z";
  std::vector<Record> records = {
      winner_of(1, Effort::quick, february), winner_of(1, Effort::thorough, january, 64),
      winner_of(1, Effort::thorough, january, 32), winner_of(1, Effort::normal, february)};
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return to_line(a) < to_line(b); });
  do {
    ASSERT_EQ(*best_of(records), winner_of(1, Effort::thorough, january, 32));
  } while (std::next_permutation(
      records.begin(), records.end(),
      [](const Record& a, const Record& b) { return to_line(a) < to_line(b); }));
  records.push_back(winner_of(1, Effort::thorough, february, 64));
  EXPECT_EQ(best_of(records), &records.back());
  EXPECT_EQ(best_of({}), nullptr);
  EXPECT_EQ(best_of({record_of(RecordType::sample, 1), record_of(RecordType::fail, 1)}), nullptr);
}

TEST(SnapshotBest, OneInDoubtIsTakenOnlyWhereThereIsNoOther) {
  const Record certain = winner_of(1, Effort::quick, "2026-01-01T00:00:00Z", 64);
  const Record disturbed =
      test::doubtful(winner_of(1, Effort::thorough, "2026-02-01T00:00:00Z", 32));
  EXPECT_EQ(*best_of({certain, disturbed}), certain);
  EXPECT_EQ(*best_of({disturbed, certain}), certain);
  EXPECT_EQ(*best_of({disturbed}), disturbed);
}

// A clock that was wrong once does not decide for ever: what is measured now goes first.
TEST(SnapshotBest, DatesAheadOfTheClockGoBehind) {
  const std::string now = time_now();
  const auto best_time = [](const std::vector<Record>& records) {
    return Snapshot::best(records, [](const Record&) { return true; })->time;
  };
  const std::string wrong = "9876-01-01T00:00:00Z";
  const std::string more_wrong = "9877-01-01T00:00:00Z";
  EXPECT_EQ(best_time({winner_of(1, Effort::normal, wrong), winner_of(1, Effort::normal, now)}),
            now);
  EXPECT_EQ(best_time({winner_of(1, Effort::normal, now), winner_of(1, Effort::normal, wrong)}),
            now);
  EXPECT_EQ(
      best_time({winner_of(1, Effort::normal, more_wrong), winner_of(1, Effort::normal, wrong)}),
      more_wrong);
  // Effort still goes first: no date makes a hasty measurement a thorough one.
  EXPECT_EQ(best_time({winner_of(1, Effort::thorough, wrong), winner_of(1, Effort::normal, now)}),
            wrong);
  EXPECT_TRUE(is_later(now, wrong));
  EXPECT_FALSE(is_later(wrong, now));
  EXPECT_FALSE(is_later(now, now));
}

TEST(SnapshotBest, AsksWhatIsUsable) {
  const std::vector<Record> records = {winner_of(1, Effort::quick), winner_of(1, Effort::thorough)};
  const auto quick = [](const Record& record) { return record.effort == Effort::quick; };
  EXPECT_EQ(Snapshot::best(records, quick), &records[0]);
  EXPECT_EQ(Snapshot::best(records, [](const Record&) { return false; }), nullptr);
}

TEST(SnapshotBest, NothingBeforeATombstoneCounts) {
  std::vector<Record> records = {winner_of(1, Effort::thorough),
                                 record_of(RecordType::tombstone, 1)};
  EXPECT_EQ(best_of(records), nullptr);
  records.push_back(winner_of(1, Effort::cut));
  EXPECT_EQ(best_of(records), &records[2]);
  records.push_back(record_of(RecordType::tombstone, 1));
  EXPECT_EQ(best_of(records), nullptr);
}

TEST(SnapshotBest, AFailEndsTheWinnersOfItsCandidateBeforeIt) {
  const Record winner = winner_of(1, Effort::thorough);
  const Record other = winner_of(1, Effort::quick, winner.time, 48);
  const Record fail = record_of(RecordType::fail, 1);
  const auto best_is = [](const std::vector<Record>& records, std::size_t index) {
    return best_of(records) == &records[index];
  };
  EXPECT_TRUE(best_is({winner, other}, 0));
  EXPECT_TRUE(best_is({winner, other, fail}, 1));
  EXPECT_TRUE(best_is({fail, winner, other}, 1));  // since then it was measured again
  EXPECT_EQ(best_of({winner, fail}), nullptr);
  EXPECT_TRUE(best_is({winner, fail, winner}, 2));
  Record elsewhere = fail;
  elsewhere.env.onednn = "3.0";
  EXPECT_TRUE(best_is({winner, other, elsewhere}, 0));
  Record later_driver = fail;
  later_driver.env.driver = "580";
  EXPECT_TRUE(best_is({winner, other, later_driver}, 1));
  Record another = fail;
  another.candidate.attributes[0].second = 1;
  EXPECT_TRUE(best_is({winner, other, another}, 0));
}

}  // namespace
}  // namespace switchback::autotune
