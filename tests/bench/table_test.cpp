// SPDX-License-Identifier: Apache-2.0
#include "bench/table.hpp"

#include <gtest/gtest.h>

#include <limits>

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

TEST(Table, CountsCodePointsNotBytes) {
  Table table({"a", "b"});
  table.add({"±", "1"});
  table.add({"xy", "2"});
  EXPECT_EQ(table.text(), "a   b\n--  -\n±   1\nxy  2\n");
}

TEST(Table, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(printable("\xC2\x9B"), "??");  // U+009B, an 8-bit CSI
  EXPECT_EQ(printable("é ±"), "é ±");
  Table table({"a"});
  table.add({"\x1b]0;title\x07"});
  EXPECT_EQ(table.text().find('\x1b'), std::string::npos);
}

TEST(Table, ShortRowsArePadded) {
  Table table({"a", "b", "c"});
  table.add({"1"});
  EXPECT_EQ(table.text(), "a  b  c\n-  -  -\n1\n");
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
  EXPECT_EQ(number_with_spread(3.614, 0.041), "3.61 ± 0.04");
}

}  // namespace
}  // namespace switchback::bench
