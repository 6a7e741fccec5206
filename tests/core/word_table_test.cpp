// SPDX-License-Identifier: Apache-2.0
// Tables of members of problems and configurations: reading returns the values that were written,
// and refuses values that a member cannot have.
#include "core/word_table.hpp"

#include <gtest/gtest.h>

namespace switchback::core {
namespace {

enum class Color { red = 0, green = 1, blue = 2 };
std::string_view color_name(Color color) noexcept {
  return color == Color::red ? "red" : color == Color::blue ? "blue" : "unknown";
}

struct Thing {
  std::int64_t size = 3;
  Color color = Color::red;
  bool shiny = false;
  bool has_edge = false;
  int edge = 0;
  friend bool operator==(const Thing&, const Thing&) = default;
};

constexpr WordTable table(
    row<&Thing::size>({.name = "size", .least = 1}),
    row<&Thing::color>({.name = "color", .most = 2, .value_name = value_name<color_name, Color>}),
    row<&Thing::shiny>({.name = "shiny", .most = 1, .rule = "a thing is shiny or not"}),
    row(
        {.name = "edge", .most = 10},
        [](const Thing& t) { return std::int64_t{t.has_edge ? 1 + t.edge : 0}; },
        [](Thing& t, std::int64_t word) {
          t.has_edge = word > 0;
          t.edge = t.has_edge ? static_cast<int>(word - 1) : 0;
        }));

using Words = std::array<std::int64_t, 6>;

TEST(WordTable, ObjectsComeBack) {
  for (const Thing& thing :
       {Thing{}, Thing{7, Color::blue, true, true, 0}, Thing{1, {}, {}, true, 9}}) {
    Words words{};
    table.write(thing, words);
    Thing back;
    ASSERT_TRUE(table.read(words, back));
    EXPECT_EQ(back, thing);
  }
  Words words{};
  table.write(Thing{7, Color::blue, true, true, 4}, words);
  EXPECT_EQ(words, (Words{7, 2, 1, 5, 0, 0}));
}

TEST(WordTable, WordsOutsideOfTheirLimitsAreNoObject) {
  const Thing before{5, Color::blue, true, true, 2};
  for (const Words& words : {Words{0, 0, 0, 0}, Words{1, 3, 0, 0}, Words{1, -1, 0, 0},
                             Words{1, 0, 2, 0}, Words{1, 0, 0, 11}}) {
    Thing thing = before;
    EXPECT_FALSE(table.read(words, thing));
    EXPECT_EQ(thing, before);
    EXPECT_NE(out_of_range(table.words(), words), "");
  }
  EXPECT_EQ(out_of_range(table.words(), Words{1, 0, 0, 0}), "");
  EXPECT_EQ(out_of_range(table.words(), Words{0, 9, 9, 9}), "size=0; it must be at least 1");
  EXPECT_EQ(out_of_range(table.words(), Words{1, 9, 9, 9}), "color=9; it must be 0 to 2");
  EXPECT_EQ(out_of_range(table.words(), Words{1, 0, 9, 9}), "shiny=9; a thing is shiny or not");
  ConfigChoice choice;
  choice.words = {1, 0, 0, 11};
  EXPECT_EQ(
      no_configuration(table.words(), choice),
      "its numbers are not a valid configuration in this version: edge=11; it must be 0 to 10");
}

TEST(WordTable, ValuesHaveNames) {
  const Word& color = table.words()[1];
  EXPECT_EQ(value_text(color, 2), "blue");
  EXPECT_EQ(value_text(color, 1), "?1");
  EXPECT_EQ(value_text(color, 7), "?7");
  EXPECT_EQ(value_text(table.words()[0], 7), "7");
  std::int64_t value = -1;
  EXPECT_TRUE(parse_value(color, "blue", value));
  EXPECT_EQ(value, 2);
  for (const char* name : {"green", "unknown", "?1", ""})
    EXPECT_FALSE(parse_value(color, name, value)) << name;
  EXPECT_FALSE(parse_value(table.words()[0], "7", value));
  EXPECT_EQ(value, 2);
}

// A query's origin (device and instruction set) is a part of it, independent of its words.
TEST(WordTable, QueriesHaveAnOrigin) {
  const ConfigOrigin origin = {DeviceKind::cuda, 3, Isa::avx2};
  const ConfigQuery query = make_query(ConfigOp::quantize, origin, table, Thing{});
  Thing thing;
  EXPECT_TRUE(read_query(ConfigOp::quantize, table, query, thing));
  EXPECT_FALSE(read_query(ConfigOp::layer_mode, table, query, thing));
  for (const ConfigOrigin& other :
       {ConfigOrigin{DeviceKind::cpu, 3, Isa::avx2}, ConfigOrigin{DeviceKind::cuda, 4, Isa::avx2},
        ConfigOrigin{DeviceKind::cuda, 3, Isa::amx}}) {
    ConfigQuery elsewhere = query;
    elsewhere.origin = other;
    EXPECT_NE(elsewhere, query);
    EXPECT_NE(elsewhere.header(), query.header());
  }
  for (const ConfigOrigin& wrong : {ConfigOrigin{static_cast<DeviceKind>(9), 3, Isa::avx2},
                                    ConfigOrigin{DeviceKind::cuda, 0, Isa::avx2},
                                    ConfigOrigin{DeviceKind::cuda, 3, static_cast<Isa>(-1)}}) {
    ConfigQuery elsewhere = query;
    elsewhere.origin = wrong;
    EXPECT_FALSE(read_query(ConfigOp::quantize, table, elsewhere, thing));
  }
}

}  // namespace
}  // namespace switchback::core
