// SPDX-License-Identifier: Apache-2.0
// The table of modes in core/modes.hpp, and all places outside of C++ that repeat a part of it.
#include "core/modes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace switchback {
namespace {

std::string text_of(const char* file) {
  std::ifstream stream(std::filesystem::path(SWITCHBACK_SOURCE_DIR) / file);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_FALSE(text.empty()) << file;
  return text;
}

// The names of modes in a Markdown table whose header begins with `header`: each row begins with a
// name in backquotes.
std::set<std::string> modes_of_table(const std::string& text, const std::string& header) {
  std::set<std::string> names;
  const std::size_t begin = text.find(header);
  if (begin == std::string::npos) return names;
  const std::string table = text.substr(begin, text.find("\n\n", begin) - begin);
  static const std::regex row("\n\\| `(\\w+)`");
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at)
    names.insert((*at)[1]);
  return names;
}

template <class Property>
std::set<std::string> names_where(const Property& property) {
  std::set<std::string> names;
  for (const Mode mode : modes_where(property))
    names.emplace(mode_name(mode));
  return names;
}
const auto any = [](const ModeTraits&) { return true; };

TEST(Modes, PropertiesOfEachFitTogether) {
  EXPECT_EQ(names_where(any).size(), mode_count) << "two modes have one name";
  for (const ModeTraits& mode : mode_table) {
    SCOPED_TRACE(mode.name);
    EXPECT_EQ(parse_mode(mode.name), mode.mode);
    // Mode auto may choose only modes that run in the same way in forward and backward, whatever
    // data of x was kept.
    if (mode.may_be_chosen) {
      EXPECT_FALSE(mode.keeps_codes);
    }
    if (mode.keeps_codes) {
      EXPECT_TRUE(mode.is_int8());
    }
    if (!mode.is_int8()) {
      EXPECT_FALSE(mode.weight.shared);
    }
  }
}

TEST(Modes, AreListedInTheOrderOfTheTable) {
  const auto choosable = [](const ModeTraits& mode) { return mode.may_be_chosen; };
  EXPECT_EQ(mode_names_where(choosable), "standard, rowwise, rowwise_shared or global");
  EXPECT_EQ(mode_names_where(choosable, "and"), "standard, rowwise, rowwise_shared and global");
}

TEST(Modes, PagesHaveARowForEach) {
  EXPECT_EQ(modes_of_table(text_of("docs/modes.md"), "| mode | scales in"), names_where(any));
  EXPECT_EQ(modes_of_table(text_of("docs/numerics.md"), "| | Y = X"),
            names_where([](const ModeTraits& mode) { return mode.mode != Mode::automatic; }));
  std::string list;
  for (const ModeTraits& mode : mode_table)
    list += fmt::format("{}`{}`", list.empty() ? "" : ", ", mode.name);
  EXPECT_NE(text_of("CONTRIBUTING.md").find("| mode | how a layer computes: " + list + " |"),
            std::string::npos)
      << list;
}

TEST(Modes, TheHeaderOfTheCInterfaceHasEach) {
  const std::string text = text_of("include/switchback/switchback.h");
  for (const ModeTraits& mode : mode_table) {
    std::string name(mode.name);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const std::regex constant(
        fmt::format("\n *SWITCHBACK_{} = {}[, ]", name, static_cast<std::int32_t>(mode.mode)));
    EXPECT_TRUE(std::regex_search(text, constant)) << mode.name;
  }
}

TEST(Modes, ThePythonPackageHasTheSameTable) {
  const std::string text = text_of("python/switchback/_modes.py");
  const auto word = [](bool value) { return value ? "True" : "False"; };
  std::size_t from = 0;
  for (const ModeTraits& mode : mode_table) {
    const std::string row =
        fmt::format("    \"{}\": Mode({}, is_int8={}, of_rows={}, int8_dw={}),\n", mode.name,
                    static_cast<std::int32_t>(mode.mode), word(mode.is_int8()),
                    word(mode.is_int8() && mode.weight.of_rows()), word(mode.has_int8_dw()));
    const std::size_t at = text.find(row, from);
    EXPECT_NE(at, std::string::npos) << "missing, or not in order: " << row;
    if (at != std::string::npos) from = at + row.size();
  }
}

}  // namespace
}  // namespace switchback
