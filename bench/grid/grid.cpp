// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "bench/grid/yaml.hpp"
#include "core/check.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

namespace {

using yaml::Kind;
using yaml::Node;

/// Reads typed values from the YAML tree of a grid file. Every error names the position, the value
/// and the rule.
class Reader {
 public:
  explicit Reader(std::string_view file_name) : file_name_(file_name) {}

  [[noreturn]] void fail(const Node& node, const std::string& message) const {
    yaml::fail_at(file_name_, node.line, node.column, message);
  }

  static std::string shown(const Node& node) {
    switch (node.kind) {
      case Kind::null:
        return "nothing";
      case Kind::list:
        return "a list";
      case Kind::map:
        return "a map";
      case Kind::scalar:
        break;
    }
    const std::string text = node.text.size() > 40 ? node.text.substr(0, 40) + "..." : node.text;
    return node.quoted ? "'" + text + "'" : text;
  }

  void check_map(const Node& node, const std::string& what,
                 std::initializer_list<std::string_view> known) const {
    if (node.kind != Kind::map)
      fail(node, fmt::format("{} is {}; it must be a map", what, shown(node)));
    for (std::size_t i = 0; i < node.keys.size(); ++i)
      if (std::find(known.begin(), known.end(), node.keys[i]) == known.end())
        yaml::fail_at(file_name_, node.key_lines[i], node.key_columns[i],
                      fmt::format("unknown key '{}' in {}; the keys are {}", node.keys[i], what,
                                  fmt::join(known.begin(), known.end(), ", ")));
  }

  static const Node* find(const Node& map, std::string_view key) {
    for (std::size_t i = 0; i < map.keys.size(); ++i)
      if (map.keys[i] == key) return &map.items[i];
    return nullptr;
  }
  const Node& need(const Node& map, const std::string& what, std::string_view key) const {
    const Node* node = find(map, key);
    if (node == nullptr) fail(map, fmt::format("{} must have '{}'", what, key));
    return *node;
  }

  std::string text(const Node& node, std::string_view key) const {
    if (node.kind != Kind::scalar || node.text.empty())
      fail(node, fmt::format("{} is {}; it must be text", key, shown(node)));
    return node.text;
  }

  std::int64_t integer(const Node& node, std::string_view key, std::int64_t low,
                       std::int64_t high) const {
    std::int64_t value = 0;
    const char* end = node.text.data() + node.text.size();
    const auto [rest, error] = std::from_chars(node.text.data(), end, value);
    const bool is_integer = node.kind == Kind::scalar && !node.quoted && rest == end &&
                            !node.text.empty() && error != std::errc::invalid_argument;
    if (!is_integer || error != std::errc() || value < low || value > high)
      fail(node, fmt::format("{} = {}; it must be an integer from {} to {}", key, shown(node), low,
                             high));
    return value;
  }

  double decimal(const Node& node, std::string_view key, double high) const {
    double value = 0;
    const char* end = node.text.data() + node.text.size();
    // A decimal number may have only digits and one decimal point. from_chars alone would also
    // accept "inf", "nan" and exponents.
    const bool plain = node.kind == Kind::scalar && !node.quoted && node.text.size() <= 32 &&
                       node.text.find_first_not_of("0123456789.") == std::string::npos;
    const auto [rest, error] = std::from_chars(node.text.data(), end, value);
    if (!plain || error != std::errc() || rest != end || !(value >= 1) || value > high)
      fail(node, fmt::format("{} = {}; it must be a number from 1 to {}", key, shown(node), high));
    return value;
  }

  bool boolean(const Node& node, std::string_view key) const {
    if (node.kind == Kind::scalar && !node.quoted) {
      if (node.text == "true") return true;
      if (node.text == "false") return false;
    }
    fail(node, fmt::format("{} = {}; it must be true or false", key, shown(node)));
  }

  std::span<const Node> list(const Node& node, std::string_view key) const {
    if (node.kind != Kind::list)
      fail(node, fmt::format("{} is {}; it must be a list", key, shown(node)));
    return node.items;
  }

  /// The items of a YAML list; a single value counts as a list of one item.
  std::span<const Node> list_or_one(const Node& node, std::string_view key) const {
    if (node.kind != Kind::list) return {&node, 1};
    if (node.items.empty()) fail(node, fmt::format("{} is an empty list", key));
    return node.items;
  }

 private:
  std::string_view file_name_;
};

std::int64_t side(const Reader& read, const Node& node, std::string_view key) {
  return read.integer(node, key, 1, max_exact_k);
}

/// The larger side of a layer, dim · wm rounded, or 0 if it exceeds the limit for a side.
std::int64_t wide_side(std::int64_t dim, double wm) {
  const double wide = std::round(static_cast<double>(dim) * wm);
  return wide >= 1 && wide <= static_cast<double>(max_exact_k) ? static_cast<std::int64_t>(wide)
                                                               : 0;
}

/// Reads a value that a rule of `exclude` compares with a case's value_of().
double rule_value(const Reader& read, const Node& node, std::string_view key) {
  if (key == "wm") return read.decimal(node, key, grid_limits::wm);
  if (key == "switch") return read.boolean(node, key) ? 1 : 0;
  return static_cast<double>(
      read.integer(node, key, 1, key == "batch_size" ? grid_limits::batch_size : max_exact_k));
}

/// A rule of a grid's `exclude`: it leaves out a case if each of the rule's lists contains the
/// case's value.
struct Rule {
  const Node* node = nullptr;
  std::vector<std::pair<std::string, std::set<double>>> lists;
  bool used = false;

  [[nodiscard]] bool matches(const Case& c) const {
    return std::all_of(lists.begin(), lists.end(), [&](const auto& list) {
      return list.second.contains(value_of(c, list.first));
    });
  }
};

std::vector<Rule> read_rules(const Reader& read, const Node& node) {
  std::vector<Rule> rules;
  for (const Node& item : read.list(node, "exclude")) {
    read.check_map(item, "a rule of exclude",
                   {"dim", "wm", "batch_size", "switch", "dim_in", "dim_out"});
    if (item.keys.empty())
      read.fail(item, "a rule of exclude without a key would exclude every case");
    if (rules.size() >= 256) read.fail(item, "more than 256 rules in exclude");
    Rule& rule = rules.emplace_back();
    rule.node = &item;
    for (std::size_t i = 0; i < item.keys.size(); ++i) {
      std::set<double> values;
      for (const Node& value : read.list_or_one(item.items[i], item.keys[i]))
        values.insert(rule_value(read, value, item.keys[i]));
      rule.lists.emplace_back(item.keys[i], std::move(values));
    }
  }
  return rules;
}

/// Collects the cases of a grid. A second case of the same shape, and a case beyond the limit of
/// their number, are refused with the position in the file.
class CaseList {
 public:
  CaseList(const Reader& read, std::vector<Case>& cases) : read_(read), cases_(cases) {}

  void add(const Node& from, const Case& c) {
    const auto [first, fresh] = lines_.try_emplace({c.batch_size, c.dim_in, c.dim_out}, from.line);
    if (!fresh)
      read_.fail(from, fmt::format("batch_size {}, dim_in {}, dim_out {} occur again (first in "
                                   "line {}); each shape may occur only once",
                                   c.batch_size, c.dim_in, c.dim_out, first->second));
    if (cases_.size() >= grid_limits::cases)
      read_.fail(from, fmt::format("more than {} cases", grid_limits::cases));
    cases_.push_back(c);
  }

 private:
  const Reader& read_;
  std::vector<Case>& cases_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> lines_;
};

void read_dims(const Reader& read, const Node& dims, std::span<const std::int64_t> batch_sizes,
               const std::vector<bool>& switches, std::vector<Rule>& rules, CaseList& cases) {
  std::size_t considered = 0;
  for (const Node& item : read.list(dims, "dims")) {
    read.check_map(item, "an item of dims", {"dim", "wm"});
    const Node& dim_node = read.need(item, "an item of dims", "dim");
    const Node& wm_node = read.need(item, "an item of dims", "wm");
    for (const Node& dim_value : read.list_or_one(dim_node, "dim")) {
      const std::int64_t dim = side(read, dim_value, "dim");
      for (const Node& wm_value : read.list_or_one(wm_node, "wm")) {
        const double wm = read.decimal(wm_value, "wm", grid_limits::wm);
        const std::int64_t wide = wide_side(dim, wm);
        if (wide == 0)
          read.fail(
              wm_value,
              fmt::format("dim {} · wm {} = {}; a side must be 1 to {}, so that int8 sums are "
                          "exact in int32",
                          dim, wm, static_cast<double>(dim) * wm, max_exact_k));
        for (const std::int64_t batch_size : batch_sizes) {
          bool square_taken = false;
          for (const bool narrows : switches) {
            if (wide == dim && square_taken) continue;
            if (++considered > 4 * grid_limits::cases)
              read.fail(item, fmt::format("dims and batch_sizes make more than {} cases",
                                          4 * grid_limits::cases));
            const Case c{batch_size, narrows ? dim : wide, narrows ? wide : dim, wm,
                         narrows && wide > dim};
            const auto rule = std::find_if(rules.begin(), rules.end(),
                                           [&](const Rule& r) { return r.matches(c); });
            square_taken = true;
            if (rule != rules.end()) {
              rule->used = true;
              continue;
            }
            cases.add(item, c);
          }
        }
      }
    }
  }
}

void read_shapes(const Reader& read, const Node& shapes, std::span<const std::int64_t> batch_sizes,
                 CaseList& cases) {
  for (const Node& item : read.list(shapes, "shapes")) {
    read.check_map(item, "an item of shapes", {"batch_size", "dim_in", "dim_out"});
    const std::int64_t dim_in =
        side(read, read.need(item, "an item of shapes", "dim_in"), "dim_in");
    const std::int64_t dim_out =
        side(read, read.need(item, "an item of shapes", "dim_out"), "dim_out");
    if (const Node* own = Reader::find(item, "batch_size")) {
      for (const Node& value : read.list_or_one(*own, "batch_size"))
        cases.add(item, case_of_shape(read.integer(value, "batch_size", 1, grid_limits::batch_size),
                                      dim_in, dim_out));
    } else {
      if (batch_sizes.empty())
        read.fail(item,
                  "an item of shapes must have 'batch_size' if the grid has no 'batch_sizes'");
      for (const std::int64_t batch_size : batch_sizes)
        cases.add(item, case_of_shape(batch_size, dim_in, dim_out));
    }
  }
}

Grid read_grid(std::string_view text, std::string_view file_name) {
  const Node root = yaml::parse(text, file_name);
  const Reader read(file_name);
  read.check_map(root, "a grid",
                 {"switchback_grid", "name", "description", "repeat", "dims", "batch_sizes",
                  "switch", "exclude", "shapes"});
  read.integer(read.need(root, "a grid", "switchback_grid"), "switchback_grid",
               grid_limits::version, grid_limits::version);

  Grid grid;
  grid.name = read.text(read.need(root, "a grid", "name"), "name");
  if (const Node* node = Reader::find(root, "description"))
    grid.description = read.text(*node, "description");
  if (const Node* node = Reader::find(root, "repeat"))
    grid.repeat = static_cast<int>(read.integer(*node, "repeat", 1, grid_limits::repeat));

  const Node* dims = Reader::find(root, "dims");
  const Node* shapes = Reader::find(root, "shapes");
  if (dims == nullptr && shapes == nullptr)
    read.fail(root, "a grid must have 'dims', 'shapes' or both");

  std::vector<std::int64_t> batch_sizes;
  if (const Node* node = Reader::find(root, "batch_sizes")) {
    for (const Node& value : read.list(*node, "batch_sizes")) {
      batch_sizes.push_back(read.integer(value, "batch_sizes", 1, grid_limits::batch_size));
      if (batch_sizes.size() > 1024) read.fail(value, "batch_sizes has more than 1024 items");
      if (std::count(batch_sizes.begin(), batch_sizes.end(), batch_sizes.back()) > 1)
        read.fail(value, fmt::format("batch_sizes has {} twice", batch_sizes.back()));
    }
    if (batch_sizes.empty()) read.fail(*node, "batch_sizes is an empty list");
  } else if (dims != nullptr) {
    read.fail(root, "a grid with 'dims' must have 'batch_sizes'");
  }

  std::vector<bool> switches;
  if (const Node* node = Reader::find(root, "switch")) {
    for (const Node& value : read.list(*node, "switch")) {
      switches.push_back(read.boolean(value, "switch"));
      if (std::count(switches.begin(), switches.end(), switches.back()) > 1)
        read.fail(value, fmt::format("switch has {} twice", bool{switches.back()}));
    }
    if (switches.empty()) read.fail(*node, "switch is an empty list");
  } else {
    switches = {false, true};
  }

  std::vector<Rule> rules;
  if (const Node* node = Reader::find(root, "exclude")) rules = read_rules(read, *node);

  CaseList cases(read, grid.cases);
  if (dims != nullptr) read_dims(read, *dims, batch_sizes, switches, rules, cases);
  for (const Rule& rule : rules)
    if (!rule.used) read.fail(*rule.node, "this rule of exclude matches no case of dims");
  if (shapes != nullptr) read_shapes(read, *shapes, batch_sizes, cases);
  if (grid.cases.empty()) read.fail(root, "the grid has no case");
  sort_cases(grid.cases);
  return grid;
}

}  // namespace

double value_of(const Case& c, std::string_view key) {
  if (key == "batch_size") return static_cast<double>(c.batch_size);
  if (key == "dim_in") return static_cast<double>(c.dim_in);
  if (key == "dim_out") return static_cast<double>(c.dim_out);
  if (key == "dim") return static_cast<double>(std::min(c.dim_in, c.dim_out));
  if (key == "wm") return c.wm;
  return c.narrows ? 1 : 0;
}

std::string case_id(const Case& c) {
  return fmt::format("{}x{}x{}", c.batch_size, c.dim_in, c.dim_out);
}

Case case_of_shape(std::int64_t batch_size, std::int64_t dim_in, std::int64_t dim_out) {
  Case c{batch_size, dim_out, dim_in, 1, dim_out < dim_in};
  const std::int64_t narrow = std::min(dim_in, dim_out);
  const std::int64_t wide = std::max(dim_in, dim_out);
  const double ratio = static_cast<double>(wide) / static_cast<double>(narrow);
  double scale = 1;
  for (int digits = 0; digits < 16; ++digits, scale *= 10) {
    c.wm = std::round(ratio * scale) / scale;
    if (std::llround(static_cast<double>(narrow) * c.wm) == wide) break;
  }
  return c;
}

std::array<std::int64_t, 3> parse_sides(std::string_view text,
                                        const std::array<std::int64_t, 3>& highest) {
  const char separator = text.find('x') != std::string_view::npos ? 'x' : ',';
  std::array<std::int64_t, 3> sides{};
  std::size_t count = 0;
  bool valid = true;
  for (std::string_view rest = text; valid; ++count) {
    const std::size_t end = std::min(rest.find(separator), rest.size());
    std::string_view part = rest.substr(0, end);
    // A space is allowed after each comma of "M, K, N".
    if (separator == ',' && count > 0 && part.starts_with(' ')) part.remove_prefix(1);
    std::int64_t side = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), side);
    valid = count < 3 && error == std::errc() && stop == part.data() + part.size() && side >= 1 &&
            side <= highest[count];
    if (valid) sides[count] = side;
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  core::require(valid && count == 2,
                "--shape '{}': it must be M,K,N (or MxKxN): the batch from 1 to {}, dim_in from 1 "
                "to {}, dim_out from 1 to {}",
                text, highest[0], highest[1], highest[2]);
  return sides;
}

Case parse_shape(std::string_view text) {
  const auto [batch_size, dim_in, dim_out] =
      parse_sides(text, {grid_limits::batch_size, max_exact_k, max_exact_k});
  return case_of_shape(batch_size, dim_in, dim_out);
}

bool case_less(const Case& a, const Case& b) noexcept {
  return std::tuple(a.macs(), a.batch_size, a.dim_in, a.dim_out) <
         std::tuple(b.macs(), b.batch_size, b.dim_in, b.dim_out);
}

void sort_cases(std::vector<Case>& cases) {
  std::sort(cases.begin(), cases.end(), case_less);
}

Grid parse_grid(std::string_view text, std::string_view file_name) {
  try {
    return read_grid(text, file_name);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // The YAML library also throws exceptions of the standard library (std::length_error,
    // bad_alloc, …).
    core::fail(Status::invalid_argument, "{}:1:1: cannot be read as a grid: {}", file_name,
               error.what());
  }
}

Grid load_grid(const std::string& file_or_name) {
  for (const BuiltinGrid& grid : builtin_grids())
    if (grid.name == file_or_name) return parse_grid(grid.text, file_or_name);
  std::ifstream file(file_or_name, std::ios::binary);
  std::string names;
  for (const BuiltinGrid& grid : builtin_grids())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", grid.name);
  core::require(file.good(), "--grid '{}': it is neither a readable file nor a built-in grid ({})",
                file_or_name, names);
  std::string text(grid_limits::file_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  core::require(!file.bad() && (file.eof() || file.gcount() > 0),
                "--grid '{}': the file cannot be read", file_or_name);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_grid(text, file_or_name);
}

}  // namespace switchback::bench
