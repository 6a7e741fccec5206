// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/table.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "bench/cli/terminal.hpp"

namespace switchback::bench {
namespace {

TEST(Table, AlignsTextLeftAndNumbersRight) {
  Table table({"name", "ms", "note"}, {"note"});
  table.add({"a", "1.25", "fine"});
  table.add({"long name", "100", "x"});
  EXPECT_EQ(table.text(),
            "name         ms  note\n"
            "---------  ----  ----\n"
            "a          1.25  fine\n"
            "long name   100  x\n");
}

TEST(Table, NoShareIsAbove100Percent) {
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(percent_text(0.734), "73 %");
  EXPECT_EQ(percent_text(1.004), "100 %");
  EXPECT_EQ(percent_text(1.006), "!");
  EXPECT_EQ(percent_text(335.2), "!");
}

TEST(Table, CountsCodePointsNotBytesAndPadsShortRows) {
  Table table({"a", "b"});
  table.add({"±", "1"});
  table.add({"xy"});
  EXPECT_EQ(table.text(), "a   b\n--  -\n±   1\nxy\n");
}

TEST(Table, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(printable("\xC2\x9B"), "??");  // U+009B, the 8-bit form of the escape sequence CSI
  EXPECT_EQ(printable("é ±"), "é ±");
  Table table({"a"});
  table.add({"\x1b]0;title\x07"});
  EXPECT_EQ(table.text().find('\x1b'), std::string::npos);
}

TEST(Table, BreaksALastColumnOfText) {
  Table table({"name", "what it is"}, {"what it is"});
  table.add({"a", "a word and another word and more of them"});
  table.add({"b", ""});
  EXPECT_EQ(table.text(32),
            "name  what it is\n"
            "----  -----------------------\n"
            "a     a word and another word\n"
            "      and more of them\n"
            "b\n");
  EXPECT_EQ(table.text(80), table.text());
}

TEST(Table, ComesInBlocksThatFit) {
  Table table({"m", "k", "first", "second", "third"});
  table.add({"1", "2", "11111111", "22222222", "33333333"});
  const std::string text = table.text(26, 2);
  EXPECT_EQ(text,
            "m  k     first    second\n"
            "-  -  --------  --------\n"
            "1  2  11111111  22222222\n"
            "\n"
            "m  k     third\n"
            "-  -  --------\n"
            "1  2  33333333\n");
  EXPECT_EQ(table.text(0, 2), table.text());
}

TEST(Help, IsBrokenBetweenWordsBehindItsColumn) {
  EXPECT_EQ(wrapped_help("  --out FILE    where the records go to\n", 34, 16),
            "  --out FILE    where the records\n"
            "                go to\n");
  EXPECT_EQ(wrapped_help("  run --grid llm --out llm.jsonl\n", 20, 16),
            "  run --grid llm\n      --out\n      llm.jsonl\n");
  EXPECT_EQ(wrapped_help("one two three\n\nfour\n", 9, 30), "one two\nthree\n\nfour\n");
  EXPECT_EQ(wrapped_help("a-word-that-is-long\n", 9, 30), "a-word-that-is-long\n");
  EXPECT_EQ(filled_paragraphs("one\ntwo three\n\n  code\nfour\n", 80),
            "one two three\n\n  code\nfour\n");
}

TEST(Number, ThreeSignificantDigits) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(0.01234), "0.0123");
  EXPECT_EQ(number(3.614), "3.61");
  EXPECT_EQ(number(36.14), "36.1");
  EXPECT_EQ(number(947.2), "947");
  EXPECT_EQ(number(-1204), "-1204");
  EXPECT_EQ(number(1.5e-9), "1.50e-09");
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(number_with_spread(3.614, 0.041, 3), "3.61 ± 0.04");
  EXPECT_EQ(number_with_spread(3.614, 0, 1), "3.61 (1 call)");
  EXPECT_EQ(number_with_spread(104, 0, 2), "104 (2 calls)");
}

}  // namespace
}  // namespace switchback::bench
