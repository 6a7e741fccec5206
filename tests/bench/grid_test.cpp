// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/grid.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "bench/run/record.hpp"
#include "bench/workload/record_file.hpp"
#include "support/generators.hpp"
#include "support/refusal.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

std::string message_of(const std::string& text) {
  return test::refusal([&] { parse_grid(text, "g.yaml"); });
}

constexpr const char* head = "switchback_grid: 1\nname: t\n";

std::string with_head(const std::string& rest) {
  return head + rest;
}

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, bool>;
Shape shape(const Case& c) {
  return {c.batch_size, c.dim_out, c.dim_in, c.wm, c.narrows};
}

using Ids = std::multiset<std::string>;
/// The ids of the cases of a grid with this text below its head.
Ids ids_of(const std::string& rest) {
  Ids ids;
  for (const Case& c : parse_grid(with_head(rest), "g.yaml").cases)
    ids.insert(case_id(c));
  return ids;
}

TEST(Grid, GeneratesBothDirectionsForEachBatchSize) {
  const Grid grid = parse_grid(with_head("description: two words\nrepeat: 7\n"
                                         "dims:\n  - {dim: 1408, wm: 4.3637}\n"
                                         "batch_sizes: [2, 1]\nswitch: [false, true]\n"),
                               "g.yaml");
  EXPECT_EQ(grid.name, "t");
  EXPECT_EQ(grid.description, "two words");
  EXPECT_EQ(grid.repeat, 7);
  ASSERT_EQ(grid.cases.size(), 4u);
  // The cases are in ascending order of work, and of dim_in where the work is equal.
  EXPECT_EQ(shape(grid.cases[0]), Shape(1, 6144, 1408, 4.3637, false));
  EXPECT_EQ(shape(grid.cases[1]), Shape(1, 1408, 6144, 4.3637, true));
  EXPECT_EQ(shape(grid.cases[2]), Shape(2, 6144, 1408, 4.3637, false));
  EXPECT_EQ(shape(grid.cases[3]), Shape(2, 1408, 6144, 4.3637, true));
}

TEST(Grid, ListsOfDimsAndWidthsAreCrossed) {
  const Ids crossed =
      ids_of("dims: [{dim: [64, 96], wm: [2, 3.5]}]\nbatch_sizes: [4]\nswitch: [true]\n");
  EXPECT_EQ(crossed, (Ids{"4x128x64", "4x224x64", "4x192x96", "4x336x96"}));
  // A square layer has only one direction.
  EXPECT_EQ(ids_of("dims: [{dim: 64, wm: 1}]\nbatch_sizes: [4]\n"), (Ids{"4x64x64"}));
}

TEST(Grid, ShapesTakeTheirOwnBatchSizeOrTheGrids) {
  const Grid grid =
      parse_grid(with_head("batch_sizes: [1, 8]\n"
                           "shapes:\n"
                           "  - {dim_in: 4096, dim_out: 11008}\n"
                           "  - {batch_size: [3, 5], dim_in: 11008, dim_out: 4096}\n"),
                 "g.yaml");
  ASSERT_EQ(grid.cases.size(), 4u);
  EXPECT_EQ(shape(grid.cases[0]), Shape(1, 11008, 4096, 2.6875, false));
  EXPECT_EQ(shape(grid.cases[1]), Shape(3, 4096, 11008, 2.6875, true));
}

TEST(Grid, ExcludeLeavesOutWhatMatchesAllOfARule) {
  EXPECT_EQ(ids_of("dims: [{dim: [64, 96], wm: 2}]\nbatch_sizes: [1, 2]\n"
                   "exclude:\n  - {dim: 96, batch_size: 2}\n  - {dim_in: 64, switch: false}\n"),
            (Ids{"1x128x64", "2x128x64", "1x96x192", "1x192x96"}));
}

TEST(Grid, WidthOfAShapeIsTheShortestThatGivesTheWideSide) {
  EXPECT_EQ(case_of_shape(1, 1024, 4096).wm, 4);
  EXPECT_EQ(case_of_shape(1, 4096, 14336).wm, 3.5);
  EXPECT_EQ(case_of_shape(1, 64, 64).wm, 1);
  EXPECT_TRUE(case_of_shape(1, 4096, 1024).narrows);
  test::Random random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t a = 1 + random.below(133144), b = 1 + random.below(133144);
    const Case c = case_of_shape(1, a, b);
    EXPECT_EQ(std::llround(static_cast<double>(std::min(a, b)) * c.wm), std::max(a, b));
  }
}

TEST(Grid, ReferenceIsThePublishedGrid) {
  const Grid grid = load_grid("reference");
  EXPECT_EQ(grid.repeat, 64);
  std::multiset<Shape> ours, published;
  for (const Case& c : grid.cases)
    ours.insert(shape(c));
  for (const Record& r :
       parse_records(read_file(SWITCHBACK_REFERENCE_RECORDS), "switchback_a100_2023.jsonl")) {
    published.insert(shape(r.shape));
    EXPECT_EQ(r.repeat, 64);
  }
  EXPECT_EQ(published.size(), 142u);
  EXPECT_EQ(ours, published);
}

TEST(Grid, BuiltinGridsAreReadableSortedAndWithoutDuplicates) {
  EXPECT_EQ(builtin_grids().size(), 4u);
  for (const BuiltinGrid& builtin : builtin_grids()) {
    const Grid grid = parse_grid(builtin.text, builtin.name);
    EXPECT_EQ(grid.name, builtin.name);
    EXPECT_FALSE(grid.description.empty());
    std::set<std::string> ids;
    for (std::size_t i = 0; i < grid.cases.size(); ++i) {
      EXPECT_TRUE(ids.insert(case_id(grid.cases[i])).second);
      if (i > 0) {
        EXPECT_LE(grid.cases[i - 1].macs(), grid.cases[i].macs());
      }
    }
  }
}

TEST(Grid, LoadsAFileAndNamesAMissingOne) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "grid.yaml";
  std::ofstream(path) << with_head("shapes: [{batch_size: 1, dim_in: 2, dim_out: 3}]\n");
  EXPECT_EQ(load_grid(path).cases.size(), 1u);
  try {
    load_grid("nowhere/x.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--grid 'nowhere/x.yaml': it is neither a readable file nor a built-in grid "
                 "(quick, vit, llm, reference)");
  }
}

struct Bad {
  std::string text;
  std::string message;
};

const std::string shapes = "shapes: [{batch_size: 1, dim_in: 2, dim_out: 3}]\n";

std::vector<Bad> bad_grids() {
  std::string many = "[";
  for (int i = 0; i < 101; ++i)
    many += std::to_string(i + 1) + ", ";
  many += "200]";
  return {
      {"", "g.yaml:1:1: the file is empty; it must be a map"},
      {"[1]", "g.yaml:1:1: a grid is a list; it must be a map"},
      {"name: t\n" + shapes, "g.yaml:1:1: a grid must have 'switchback_grid'"},
      {"switchback_grid: 2\nname: t\n" + shapes,
       "g.yaml:1:18: switchback_grid = 2; it must be an integer from 1 to 1"},
      {"switchback_grid: 1\n" + shapes, "g.yaml:1:1: a grid must have 'name'"},
      {with_head("dmis: []\n"),
       "g.yaml:3:1: unknown key 'dmis' in a grid; the keys are switchback_grid, name, description, "
       "repeat, dims, batch_sizes, switch, exclude, shapes"},
      {head, "g.yaml:1:1: a grid must have 'dims', 'shapes' or both"},
      {with_head("repeat: 0\n" + shapes),
       "g.yaml:3:9: repeat = 0; it must be an integer from 1 to 1000000"},
      {with_head("dims: [{dim: 4, wm: 2}]\n"),
       "g.yaml:1:1: a grid with 'dims' must have 'batch_sizes'"},
      {with_head("batch_sizes: [1, -4]\n" + shapes),
       "g.yaml:3:18: batch_sizes = -4; it must be an integer from 1 to 1073741824"},
      {with_head("batch_sizes: [99999999999999999999]\n" + shapes),
       "g.yaml:3:15: batch_sizes = 99999999999999999999; it must be an integer from 1 to "
       "1073741824"},
      {with_head("batch_sizes: [4, 4]\n" + shapes), "g.yaml:3:18: batch_sizes has 4 twice"},
      {with_head("batch_sizes: []\n" + shapes), "g.yaml:3:14: batch_sizes is an empty list"},
      {with_head("batch_sizes: [1]\ndims:\n  - {dim: 0, wm: 4}\n"),
       "g.yaml:5:11: dim = 0; it must be an integer from 1 to 133144"},
      {with_head("batch_sizes: [1]\ndims:\n  - {dim: , wm: 4}\n"),
       "g.yaml:5:11: dim = nothing; it must be an integer from 1 to 133144"},
      {with_head("batch_sizes: [1]\ndims:\n  - {dim: 8, wm: nan}\n"),
       "g.yaml:5:18: wm = nan; it must be a number from 1 to 133144"},
      {with_head("batch_sizes: [1]\ndims:\n  - {dim: 8}\n"),
       "g.yaml:5:5: an item of dims must have 'wm'"},
      {with_head("batch_sizes: [1]\ndims:\n  - {dim: 40000, wm: 4}\n"),
       "g.yaml:5:22: dim 40000 · wm 4 = 160000; a side must be 1 to 133144, so that int8 sums are "
       "exact in int32"},
      {with_head("shapes:\n  - {batch_size: 1, dim_in: 133145, dim_out: 8}\n"),
       "g.yaml:4:29: dim_in = 133145; it must be an integer from 1 to 133144"},
      {with_head("shapes:\n  - {batch: 1, dim_in: 8, dim_out: 8}\n"),
       "g.yaml:4:6: unknown key 'batch' in an item of shapes; the keys are batch_size, dim_in, "
       "dim_out"},
      {with_head("shapes:\n  - {dim_in: 8, dim_out: 8}\n"),
       "g.yaml:4:5: an item of shapes must have 'batch_size' if the grid has no 'batch_sizes'"},
      {with_head("batch_sizes: [2]\ndims:\n  - {dim: 8, wm: 2}\nshapes:\n"
                 "  - {dim_in: 8, dim_out: 16}\n"),
       "g.yaml:7:5: batch_size 2, dim_in 8, dim_out 16 occur again (first in line 5); each shape "
       "may occur only once"},
      {with_head("switch: [yes]\n" + shapes),
       "g.yaml:3:10: switch = yes; it must be true or false"},
      {with_head("batch_sizes: [2]\ndims: [{dim: 8, wm: 2}]\nexclude:\n  - {dim: 9}\n"),
       "g.yaml:6:5: this rule of exclude matches no case of dims"},
      {with_head("batch_sizes: [2]\ndims: [{dim: 8, wm: 2}]\nexclude: [{}]\n"),
       "g.yaml:5:11: a rule of exclude without a key would exclude every case"},
      {with_head("batch_sizes: [2]\ndims: [{dim: 8, wm: 2}]\nexclude: [{dim: 8}]\n"),
       "g.yaml:1:1: the grid has no case"},
      {with_head("name: u\n"), "g.yaml:3:1: 'name' occurs again (first in line 2)"},
      {with_head("batch_sizes: " + many + "\ndims: [{dim: " + many + ", wm: 2}]\n"),
       "g.yaml:4:8: more than 10000 cases"},
      {with_head("dims: [&a {dim: 8, wm: 2}, *a]\n"),
       "g.yaml:3:8: an anchor; a grid file must not have anchors"},
      {with_head("repeat: !!int 4\n"),
       "g.yaml:3:9: the tag 'tag:yaml.org,2002:int'; a grid file must not have tags"},
      {with_head(shapes + "---\nname: u\n"),
       "g.yaml:4:1: a second document; a grid file must have only one"},
      {with_head("description: a\x01"),
       "g.yaml:3:15: the byte 0x01; a grid file must be UTF-8 text without control characters or "
       "byte order mark"},
      {with_head("description: \xE9\n"),
       "g.yaml:3:14: the byte 0xE9; a grid file must be UTF-8 text without control characters or "
       "byte order mark"},
      {with_head("dims: [[[[[[[[[[1]]]]]]]]]]\n"), "g.yaml:3:14: nested deeper than 8 levels"},
  };
}

TEST(Grid, BadOnesAreRefusedWithTheirPlace) {
  for (const Bad& bad : bad_grids())
    EXPECT_EQ(message_of(bad.text), bad.message);
}

TEST(Grid, BrokenYamlSaysWhere) {
  const std::string open = message_of(with_head("description: a: b: c\n"));
  EXPECT_NE(open.find(": not YAML: "), std::string::npos) << open;
  for (const char* rest : {"dims: [{dim: 8\n", "dims: [\n", "{", "a: b: c\n", "\t- x\n"}) {
    const std::string message = message_of(with_head(rest));
    EXPECT_EQ(message.find("g.yaml:"), 0u) << message;
  }
}

TEST(Grid, TooLargeFilesAreRefusedUnread) {
  const std::string message = message_of(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(message, "g.yaml:1:1: 1048577 bytes; a grid file must have at most 1048576");
}

// The built-in grids with bytes changed, removed or doubled: parsing them gives a grid or throws an
// Error, and does nothing else.
TEST(Grid, DamagedFilesThrowNothingButErrors) {
  test::Random random(11);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto below = [&](std::size_t limit) {
      return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(limit)));
    };
    std::string text(builtin_grids()[below(4)].text);
    const std::string marks = "[]{}:,-&*!|>'\"#%@?\n \t0123456789\xC3";
    for (std::size_t i = 0; i <= below(6); ++i) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = marks[below(marks.size())];
          break;
        case 1:
          text.erase(at, below(12));
          break;
        case 2:
          text.insert(at, 1, marks[below(marks.size())]);
          break;
        default:
          text.insert(at, text.substr(at / 2, below(40)));
      }
      if (text.empty()) text = " ";
    }
    try {
      const Grid grid = parse_grid(text, "g.yaml");
      ++accepted;
      EXPECT_FALSE(grid.cases.empty());
      for (const Case& c : grid.cases) {
        EXPECT_GT(c.batch_size, 0);
        EXPECT_GT(c.dim_in, 0);
        EXPECT_GT(c.dim_out, 0);
      }
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("g.yaml:"), 0u) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(Shape, IsParsedOrRefused) {
  const Case c = parse_shape("16,1024,4096");
  EXPECT_EQ(shape(c), Shape(16, 4096, 1024, 4, false));
  EXPECT_EQ(parse_shape(case_id(c)), c);
  for (const char* bad :
       {"", "1", "1,2", "1,2,3,4", "0,2,3", "1,-2,3", "1,2,133145", "1,2,x", "a,2,3", "1,2,3 ",
        ",2,3", "1x2", "1x2,3", "1x2x", "x2x3", "99999999999999999999,1,1"})
    EXPECT_THROW(parse_shape(bad), Error) << bad;
}

}  // namespace
}  // namespace switchback::bench
