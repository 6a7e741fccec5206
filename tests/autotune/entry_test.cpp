// SPDX-License-Identifier: Apache-2.0
// Tests of the entries of a tuning cache: they are written as lines and read back, and the better
// of two winners is kept.
#include "autotune/store/entry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autotune/entries.hpp"
#include "autotune/store/snapshot.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

using test::candidate_of;
using test::entry_of;
using test::key_of;
using test::lines_of;
using test::newer_line;
using test::put;
using test::replaced;
using test::validated_of;
using test::winner_of;

constexpr const char* early = "2026-01-01T00:00:00Z";
constexpr const char* late = "2026-02-01T00:00:00Z";

std::string why_not(const std::string& line, bool* newer = nullptr) {
  std::string why;
  return from_line(line, why, newer) ? "" : why;
}
Entry merged(const std::vector<Entry>& entries) {
  Entry entry = entries.front();
  for (const Entry& other : entries)
    merge_into(entry, other);
  return entry;
}

TEST(EntryLine, EverythingComesBack) {
  Entry full = test::doubtful(winner_of(1, Effort::thorough));
  full.env = {"7", "120803", "2.6.3", "0.3.21", "550.54", "NVIDIA \"H\\200\"\t", "0.1.0"};
  full.winner->candidate.attributes = {{"b", -1}, {"a", std::numeric_limits<std::int64_t>::max()}};
  full.winner->candidate.algo_hex = "00ff";
  full.winner->stats.min_ms = 1e-300;
  full.validated = {{candidate_of(1), "", early}, {candidate_of(2), "C[0,0] is 1,\nnot 2", late}};
  for (const Entry& entry : {entry_of(3), winner_of(1), validated_of(2, 8, "wrong"), full}) {
    const std::string line = to_line(entry);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find("{\"key\":" + entry.key.json + ","), 0u);
    EXPECT_EQ(key_text(line), entry.key.json);
    std::string why;
    const auto same = from_line(line, why);
    ASSERT_TRUE(same.has_value()) << why;
    EXPECT_EQ(*same, entry) << line;
    // A line is also read if a person or a tool changed its spacing or added a field.
    const auto spaced = from_line(
        replaced(replaced(line, "{\"key\":{", "{ \"new\":[1],\t\"key\": { "), "\"v\":", "\"v\" : "),
        why);
    ASSERT_TRUE(spaced.has_value()) << why;
    EXPECT_EQ(*spaced, entry);
  }
  EXPECT_TRUE(entry_of(3).is_miss());
  EXPECT_FALSE(winner_of(3).is_miss());
  std::string bytes = "\xFF";
  Entry binary = winner_of(1);
  binary.env.product = bytes;
  std::string why;
  EXPECT_EQ(from_line(to_line(binary), why)->env.product, "\xEF\xBF\xBD");
}

TEST(EntryLine, WhatALineCannotRepresentIsRefused) {
  Entry nan = winner_of(1);
  nan.winner->stats.p80_ms = std::nan("");
  Entry twice = winner_of(1);
  twice.winner->candidate.attributes = {{"mc", 1}, {"mc", 2}};
  std::vector<Entry> all = {nan, twice};
  for (const char* key : {"", "[1]", "{\"a\":1", "{\n}", "{\"a\":}"}) {
    all.push_back(winner_of(1));
    all.back().key.json = key;
  }
  for (const Entry& entry : all) {
    try {
      (void)to_line(entry);
      ADD_FAILURE() << entry.key.json;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::invalid_argument) << error.what();
    }
  }
}

TEST(EntryLine, OtherLinesAreRefusedWithAReason) {
  const std::string line = to_line(test::doubtful(winner_of(1)));
  for (std::size_t size = 0; size < line.size(); ++size)
    EXPECT_NE(why_not(line.substr(0, size)), "") << size;
  EXPECT_EQ(why_not("noise"), "it is not a valid JSON object");
  EXPECT_EQ(why_not(std::string(100'000, '[')), "it is not a valid JSON object");
  EXPECT_EQ(why_not("{\"key\":" + std::string(100'000, '{')), "it is not a valid JSON object");
  EXPECT_EQ(why_not(replaced(line, R"("v":1)", R"("v":"1")")), "field 'v' is not a 64-bit integer");
  EXPECT_EQ(why_not(replaced(line, R"("env":{)", R"("vne":{)")), "field 'env' is missing");
  EXPECT_EQ(why_not(replaced(line, R"("mc":96)", R"("mc":9.5)")),
            "field 'mc' is not a 64-bit integer");
  EXPECT_EQ(why_not(replaced(line, R"("mc":96)", R"("mc":9223372036854775808)")),
            "field 'mc' is not a 64-bit integer");
  EXPECT_EQ(why_not(replaced(line, R"("effort":"normal")", R"("effort":"great")")),
            "effort 'great' is not one of cut, quick, normal, thorough");
  EXPECT_EQ(why_not(replaced(line, R"("min_ms":0.1)", R"("min_ms":"0.1")")),
            "field 'min_ms' is not a number");
  bool newer = false;
  EXPECT_EQ(why_not(newer_line(winner_of(1)), &newer),
            "schema version 2; this library reads version 1");
  EXPECT_TRUE(newer);
  EXPECT_NE(why_not(replaced(line, R"("v":1)", R"("v":0)"), &newer), "");
  EXPECT_FALSE(newer);
}

TEST(EntryMerge, TheBetterWinnerStaysWhateverTheOrder) {
  const Entry quick = winner_of(1, Effort::quick, late, 1);
  const Entry older = winner_of(1, Effort::normal, early, 2);
  const Entry newer = winner_of(1, Effort::normal, late, 3);
  const Entry wrong_clock = winner_of(1, Effort::normal, "9876-01-01T00:00:00Z", 4);
  const Entry in_doubt = test::doubtful(winner_of(1, Effort::thorough, late, 5));
  std::vector<Entry> all = {quick, older, newer, wrong_clock, in_doubt};
  const auto before = [](const Entry& a, const Entry& b) {
    return a.winner->candidate.attributes < b.winner->candidate.attributes;
  };
  do {
    EXPECT_EQ(merged(all).winner, newer.winner);
  } while (std::next_permutation(all.begin(), all.end(), before));
  EXPECT_EQ(merged({quick, older}).winner, older.winner);
  EXPECT_EQ(merged({older, wrong_clock}).winner, older.winner);
  EXPECT_EQ(merged({in_doubt, quick}).winner, quick.winner);
  EXPECT_EQ(merged({entry_of(1), in_doubt}).winner, in_doubt.winner);
  // Of two equally good winners either may be kept, but the same one in both orders.
  const Entry twin = winner_of(1, Effort::normal, late, 6);
  EXPECT_EQ(merged({newer, twin}), merged({twin, newer}));
}

TEST(EntryMerge, AWinnerThatWasFoundWrongSinceGoes) {
  const Entry winner = winner_of(1, Effort::thorough, early, 96);
  const Entry other = winner_of(1, Effort::quick, late, 64);
  const Entry wrong_later = validated_of(1, 96, "wrong", late);
  const Entry wrong_before = validated_of(1, 96, "wrong", "2025-01-01T00:00:00Z");
  EXPECT_EQ(merged({winner, wrong_before}).winner, winner.winner);
  EXPECT_EQ(merged({winner, wrong_later}).winner, std::nullopt);
  EXPECT_EQ(merged({wrong_later, winner}).winner, std::nullopt);
  // The search that found the old winner wrong may have found a winner itself.
  Entry search = other;
  search.validated = wrong_later.validated;
  EXPECT_EQ(merged({winner, search}), search);
  EXPECT_EQ(merged({search, winner}), search);
  // If the winner and the failed check have times in the same second, the winner is removed.
  EXPECT_EQ(merged({winner, validated_of(1, 96, "wrong", early)}).winner, std::nullopt);
}

TEST(EntryMerge, TheLaterWordOnACandidateCounts) {
  const Entry right = validated_of(1, 8, "", early), wrong = validated_of(1, 8, "wrong", late);
  const Entry right_again = validated_of(1, 8, "", "2026-03-01T00:00:00Z");
  EXPECT_EQ(merged({right, wrong}).validated, wrong.validated);
  EXPECT_EQ(merged({wrong, right}).validated, wrong.validated);
  EXPECT_EQ(merged({right_again, wrong, right}).validated, right_again.validated);
  const Entry wrong_at_once = validated_of(1, 8, "wrong", early);
  EXPECT_EQ(merged({wrong_at_once, right}).validated, wrong_at_once.validated);
  EXPECT_EQ(merged({right, wrong_at_once}).validated, wrong_at_once.validated);
  EXPECT_EQ(merged({right, validated_of(1, 9, "")}).validated.size(), 2u);
}

TEST(EntryMerge, TheBestOfSeveralEnvironmentsIsUsableAndDidNotFail) {
  Entry old_driver = winner_of(1, Effort::thorough, early, 96);
  old_driver.env.driver = "1";
  const Entry here = winner_of(1, Effort::quick, late, 64);
  Entry wrong = validated_of(1, 96, "wrong", late);
  const auto any = [](const Entry&) { return true; };
  std::vector<Entry> all = {old_driver, here};
  EXPECT_EQ(best_of(all, any), &all[0]);
  EXPECT_EQ(best_of(all, [](const Entry& e) { return e.env.driver.empty(); }), &all[1]);
  all.push_back(wrong);
  std::string why;
  EXPECT_TRUE(failed_since(all[0], all, &why));
  EXPECT_EQ(why, "wrong");
  EXPECT_EQ(best_of(all, any), &all[1]);
  all[2].env.kernels = "8";  // it failed with other kernels, so all[0] is usable
  EXPECT_EQ(best_of(all, any), &all[0]);
  EXPECT_EQ(best_of({}, any), nullptr);
}

TEST(Snapshot, FindsTheEntriesOfAKeyAndNamesTheRest) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path file = directory / "file.jsonl";
  Entry other = winner_of(1, Effort::quick);
  other.env.driver = "9";
  const std::string spaced = replaced(to_line(winner_of(3)), "{\"key\":{", "{\"key\": {");
  const std::string broken = replaced(to_line(winner_of(4)), R"("env")", R"("nev")");
  const std::string cut = to_line(winner_of(5)).substr(0, 200);
  put(file, "\xEF\xBB\xBF" + to_line(winner_of(1)) + "\r\n\n  \nnoise\n" + to_line(winner_of(2)) +
                "\n" + spaced + "\n" + to_line(other) + "\n" + broken + "\n" +
                newer_line(winner_of(6)) + "\n" + cut);
  Snapshot snapshot;
  snapshot.add_file(file);
  snapshot.add_file(directory / "none.jsonl");
  snapshot.add_file(directory.path());
  EXPECT_EQ(snapshot.find(key_of(1)), (std::vector{winner_of(1), other}));
  EXPECT_EQ(snapshot.find(key_of(2)), std::vector{winner_of(2)});
  EXPECT_EQ(snapshot.find(key_of(3)), std::vector{winner_of(3)});
  EXPECT_EQ(snapshot.find(key_of(9)), std::vector<Entry>());
  EXPECT_EQ(snapshot.skipped(), 2);
  ASSERT_EQ(snapshot.warnings().size(), 3u);
  EXPECT_EQ(describe(snapshot.warnings()[0]), file.string() + ":4: it is not a valid JSON object");
  EXPECT_EQ(describe(snapshot.warnings()[1]), file.string() + ":10: it is not a valid JSON object");
  EXPECT_EQ(describe(snapshot.warnings()[2]), directory.path().string() + ": it is a directory");
  // The fields of an entry are parsed only when its key is looked up.
  std::vector<Warning> warnings;
  EXPECT_TRUE(snapshot.find(key_of(4), &warnings).empty());
  EXPECT_TRUE(snapshot.find(key_of(6), &warnings).empty());
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(describe(warnings[0]), file.string() + ":8: field 'env' is missing");
  EXPECT_EQ(describe(warnings[1]),
            file.string() + ":9: schema version 2; this library reads version 1");

  snapshot.add(validated_of(2, 8, "wrong"));
  EXPECT_EQ(snapshot.find(key_of(2)), (std::vector{winner_of(2), validated_of(2, 8, "wrong")}));
  std::int64_t entries = 0;
  snapshot.for_each([&](const Entry&) { ++entries; });
  EXPECT_EQ(entries, 5);
}

}  // namespace
}  // namespace switchback::autotune
