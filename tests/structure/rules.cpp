// SPDX-License-Identifier: Apache-2.0
#include "structure/rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <sstream>

namespace switchback::test {

namespace {

struct Layer {
  std::string_view name;
  int rank;
};
// The layers of the source tree. A file may include files of its own layer and of every layer of
// lower rank. quant and gemm are siblings: neither includes the other.
constexpr std::array<Layer, 12> layers = {{{"core", 0},
                                           {"quant", 1},
                                           {"gemm", 1},
                                           {"grouped", 2},
                                           {"linear", 3},
                                           {"models", 4},
                                           {"measure", 4},
                                           {"autotune", 5},
                                           {"capi", 6},
                                           {"bench", 7},
                                           {"examples", 7},
                                           {"studies", 8}}};
// Only files in these folders may include files of studies/. This holds for studies/models too,
// although its rank is lower: its rank follows from the files that it includes.
constexpr std::array<std::string_view, 2> users_of_studies = {"studies/", "examples/"};
// The layers of public headers that are not named after their layer.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> public_headers = {
    {{"context.hpp", "core"},
     {"engine_info.hpp", "core"},
     {"error.hpp", "core"},
     {"language.hpp", "core"},
     {"export.h", "core"},
     {"groups.hpp", "core"},
     {"matrix.hpp", "core"},
     {"types.hpp", "core"},
     {"activation.hpp", "quant"},
     {"rotation.hpp", "quant"},
     {"rounding.hpp", "quant"},
     {"fingerprint.hpp", "quant"},
     {"quant.hpp", "quant"},
     {"gemm.hpp", "gemm"},
     {"grouped.hpp", "grouped"},
     {"linear.hpp", "linear"},
     {"fragmented_linear.hpp", "linear"},
     {"validate.hpp", "autotune"},
     {"tuner.hpp", "autotune"},
     {"switchback.h", "capi"},
     {"switchback_groups.h", "capi"}}};

const Layer* layer_named(std::string_view name) {
  const auto* found = std::find_if(layers.begin(), layers.end(),
                                   [&](const Layer& layer) { return layer.name == name; });
  return found == layers.end() ? nullptr : found;
}

// The layer of an include or of a path below src/, such as "switchback/quant.hpp" or
// "core/check.hpp".
const Layer* layer_of_include(std::string_view name) {
  // Files trial* are in the folder of their operation, but are part of the tuner.
  for (const std::string_view folder :
       {"quant/", "gemm/int8/", "gemm/floating/", "gemm/blockwise/", "linear/", "measure/"})
    if (name.starts_with(folder) && name.substr(folder.size()).starts_with("trial"))
      return layer_named("autotune");
  constexpr std::string_view api = "switchback/";
  if (name.starts_with(api)) {
    for (const auto& [header, layer] : public_headers)
      if (name.substr(api.size()) == header) return layer_named(layer);
    return nullptr;
  }
  if (name.starts_with("studies/models/")) return layer_named("models");
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? nullptr : layer_named(name.substr(0, slash));
}

const Layer* layer_of_file(std::string_view path) {
  for (const std::string_view root : {"src/", "include/", ""})
    if (path.starts_with(root)) return layer_of_include(path.substr(root.size()));
  return nullptr;
}

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}
bool is_code(std::string_view path) {
  return ends_with_any(path, {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"});
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

template <class Visit>
void for_each_line(const std::string& text, Visit visit) {
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number)
    visit(number, std::string_view(line));
}

struct Include {
  int line;
  std::string name;
  bool angled;
};

std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> found;
  for_each_line(without_comments(text, true), [&](int number, std::string_view line) {
    static const std::regex include(R"(\s*#\s*include\s*(["<])([^">]+)[">].*)");
    std::cmatch match;
    if (line.find("include") == std::string_view::npos ||
        !std::regex_match(line.data(), line.data() + line.size(), match, include))
      return;
    found.push_back({number, match[2], match[1] == "<"});
  });
  return found;
}

}  // namespace

std::string without_comments(std::string_view text, bool keep_strings) {
  enum class In { code, line_comment, block_comment, string, character };
  In in = In::code;
  std::string result(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const auto blank = [&](std::size_t at) {
      if (text[at] != '\n') result[at] = ' ';
    };
    switch (in) {
      case In::code:
        if (c == '/' && (next == '/' || next == '*')) {
          in = next == '/' ? In::line_comment : In::block_comment;
          blank(i);
          blank(++i);
        } else if (c == '"') {
          in = In::string;
        } else if (c == '\'' && !(i > 0 && is_word(text[i - 1]))) {  // not a digit separator
          in = In::character;
        }
        break;
      case In::line_comment:
        if (c == '\n') in = In::code;
        blank(i);
        break;
      case In::block_comment:
        blank(i);
        if (c == '*' && next == '/') {
          blank(++i);
          in = In::code;
        }
        break;
      case In::string:
      case In::character: {
        const char quote = in == In::string ? '"' : '\'';
        if (c == quote || c == '\n') {
          in = In::code;
          break;
        }
        if (!keep_strings) blank(i);
        if (c == '\\' && i + 1 < text.size()) {
          ++i;
          if (!keep_strings) blank(i);
        }
        break;
      }
    }
  }
  return result;
}

namespace {

std::vector<Violation> check_layers(const std::string& path, const std::string& text) {
  std::vector<Violation> found;
  if (!is_code(path)) return found;
  const Layer* own = layer_of_file(path);
  for (const Include& include : includes_of(text)) {
    const auto complain = [&](const std::string& what) {
      found.push_back({path, include.line, "include \"" + include.name + "\" " + what});
    };
    if (include.name.find("..") != std::string::npos) complain("climbs with ..");
    if (own == nullptr || include.angled) continue;
    const std::string name(own->name);
    const Layer* other = layer_of_include(include.name);
    if (other != nullptr && other != own && other->rank == own->rank)
      complain("of a sibling: " + name + " does not know " + std::string(other->name));
    if (other != nullptr && other->rank > own->rank)
      complain("points up: " + name + " is below " + std::string(other->name));
    if (include.name.starts_with("studies/") &&
        std::none_of(users_of_studies.begin(), users_of_studies.end(),
                     [&](std::string_view user) { return path.starts_with(user); }))
      complain("of a study: " + name + " does not know the studies");
    if (include.name.starts_with("tests/")) complain("is of the tests");
  }
  return found;
}

std::vector<Violation> check_public_includes(const std::string& path, const std::string& text) {
  std::vector<Violation> found;
  if (!path.starts_with("include/")) return found;
  if (layer_of_file(path) == nullptr)
    found.push_back({path, 1, "a public header whose layer tests/structure/rules.cpp lacks"});
  for (const Include& include : includes_of(text)) {
    const bool standard =
        include.angled &&
        (include.name == "stddef.h" || include.name == "stdint.h" || include.name == "string.h" ||
         std::all_of(include.name.begin(), include.name.end(), [](char c) { return is_word(c); }));
    const bool own = !include.angled && include.name.starts_with("switchback/");
    if (!standard && !own)
      found.push_back({path, include.line,
                       "include of \"" + include.name +
                           "\"; a public header includes switchback/ and the standard library"});
  }
  return found;
}

std::vector<Violation> check_no_output(const std::string& path, const std::string& text) {
  std::vector<Violation> found;
  const bool library = path.starts_with("src/") || path.starts_with("include/");
  if (!library || !is_code(path) || path == "src/core/assert.hpp") return found;
  // A method or member with the name of a forbidden function is a different function.
  static const std::regex call(
      R"((^|[^\w.>])(v?f?printf|f?puts|putchar|perror|print(ln)?|abort|_?exit|quick_exit|terminate)\s*\()");
  static const std::regex stream(R"(\b(cout|cerr|clog|stdout|stderr)\b)");
  for_each_line(without_comments(text, false), [&](int number, std::string_view line) {
    std::cmatch match;
    const char* const end = line.data() + line.size();
    if (std::regex_search(line.data(), end, match, call))
      found.push_back(
          {path, number, match.str(2) + "(): the library never prints, exits or aborts"});
    if (std::regex_search(line.data(), end, match, stream))
      found.push_back({path, number, match.str(1) + ": the library never prints"});
  });
  return found;
}

std::vector<Violation> check_no_outside_paths(const std::string& path, const std::string& text) {
  std::vector<Violation> found;
  // The forbidden paths are written in two pieces, so that this file passes its own rule.
  const std::string homes[] = {std::string("/ho") + "me/", std::string("/Us") + "ers/",
                               std::string("/ro") + "ot/", std::string("/wo") + "rk/",
                               std::string("C:") + "\\"};
  for_each_line(text, [&](int number, std::string_view line) {
    for (const std::string& home : homes) {
      const std::size_t at = line.find(home);
      // The match must begin a path: in "homework/x" or "a/work/x" it is a part of another name or
      // path.
      const bool starts = at != std::string_view::npos &&
                          (at == 0 || (!is_word(line[at - 1]) && line[at - 1] != '}' &&
                                       line[at - 1] != '.' && line[at - 1] != '*'));
      if (starts) found.push_back({path, number, "names " + home});
    }
  });
  if (!is_code(path)) return found;
  // A string is an absolute path if it has a directory and more ("/sys/…"). "/index0", or anything
  // that is appended to another string, is not absolute.
  static const std::regex absolute(R"re("(/[A-Za-z][^"/]*/[^"]*))re");
  static const std::regex system("/(proc|sys|dev|etc)/.*");
  for_each_line(without_comments(text, true), [&](int number, std::string_view line) {
    std::cmatch match;
    if (line.find("\"/") == std::string_view::npos ||
        !std::regex_search(line.data(), line.data() + line.size(), match, absolute) ||
        std::regex_match(match.str(1), system) ||
        match.prefix().str().find('+') != std::string::npos)
      return;
    found.push_back({path, number, "an absolute path: " + match.str(1)});
  });
  return found;
}

}  // namespace

std::vector<Violation> check_file(const std::string& path, const std::string& text) {
  std::vector<Violation> all;
  for (auto* check :
       {&check_layers, &check_public_includes, &check_no_output, &check_no_outside_paths}) {
    const std::vector<Violation> found = (*check)(path, text);
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace switchback::test
