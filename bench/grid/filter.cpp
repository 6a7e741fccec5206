// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/filter.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include "bench/cli/cli.hpp"
#include "core/check.hpp"

namespace switchback::bench {

const char* const filter_help =
    "only cases that match all of these terms, separated by commas. A term is KEY=V (or !=, <, <=, "
    ">, >=), KEY=A..B or KEY=A|B, where KEY is batch_size, dim_in, dim_out, wm or switch; or a "
    "part of the case's id (batch_size x dim_in x dim_out, such as 1024x4096x1024), or with * and "
    "? a pattern for the whole id. If repeated: cases that match any of them";

namespace {

constexpr std::string_view keys = "batch_size, dim_in, dim_out, wm, switch";

/// Whether `text` matches a pattern, where ? stands for any character and * for any sequence.
bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

double parse_value(std::string_view term, std::string_view key, std::string_view text) {
  if (key == "switch") {
    core::require(text == "true" || text == "false", "--filter '{}': switch must be true or false",
                  term);
    return text == "true" ? 1 : 0;
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  core::require(error == std::errc() && rest == text.data() + text.size() && std::isfinite(value),
                "--filter '{}': '{}' is not a number", term, text);
  return value;
}

struct Range {
  double low, high;
};

std::function<bool(const Case&)> parse_term(std::string_view term) {
  const std::size_t at = term.find_first_of("=<>!");
  if (at == std::string_view::npos) {
    if (term.find_first_of("*?") != std::string_view::npos)
      return [pattern = std::string(term)](const Case& c) { return glob(pattern, case_id(c)); };
    return [part = std::string(term)](const Case& c) {
      return case_id(c).find(part) != std::string::npos;
    };
  }
  const std::string key(term.substr(0, at));
  core::require(
      key == "batch_size" || key == "dim_in" || key == "dim_out" || key == "wm" || key == "switch",
      "--filter '{}': '{}' is not one of {}", term, key, keys);
  const std::size_t length = at + 1 < term.size() && term[at + 1] == '=' ? 2 : 1;
  const std::string op(term.substr(at, length));
  const std::string_view right = term.substr(at + length);
  core::require(op != "!" && op != "==", "--filter '{}': '{}' is not one of = != < <= > >=", term,
                op);
  core::require(key != "switch" || op == "=" || op == "!=",
                "--filter '{}': switch allows only = and !=", term);

  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<Range> ranges;
  if (op == "=" || op == "!=") {
    for (const std::string& part : split_list(right, '|')) {
      const std::size_t dots = part.find("..");
      const std::string_view view(part);
      if (dots == std::string::npos) {
        const double value = parse_value(term, key, view);
        ranges.push_back({value, value});
      } else {
        ranges.push_back({parse_value(term, key, view.substr(0, dots)),
                          parse_value(term, key, view.substr(dots + 2))});
        core::require(ranges.back().low <= ranges.back().high,
                      "--filter '{}': the range {} is empty", term, part);
      }
    }
    core::require(!ranges.empty(), "--filter '{}': it has no value", term);
  } else {
    const double value = parse_value(term, key, right);
    if (op == "<") ranges.push_back({-infinity, std::nextafter(value, -infinity)});
    if (op == "<=") ranges.push_back({-infinity, value});
    if (op == ">") ranges.push_back({std::nextafter(value, infinity), infinity});
    if (op == ">=") ranges.push_back({value, infinity});
  }
  return [key, ranges, inside = op != "!="](const Case& c) {
    const double value = value_of(c, key);
    for (const Range& range : ranges)
      if (value >= range.low && value <= range.high) return inside;
    return !inside;
  };
}

}  // namespace

Filter::Filter(std::string_view expression) {
  for (const std::string& term : split_list(expression))
    terms_.push_back(parse_term(term));
  core::require(!terms_.empty(), "--filter '{}': it has no term", expression);
}

bool Filter::matches(const Case& c) const {
  for (const auto& term : terms_)
    if (!term(c)) return false;
  return true;
}

std::vector<Case> filter_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& expressions) {
  if (expressions.empty()) return cases;
  std::vector<Filter> filters;
  for (const std::string& expression : expressions)
    filters.emplace_back(expression);
  std::vector<Case> chosen;
  for (const Case& c : cases)
    for (const Filter& filter : filters)
      if (filter.matches(c)) {
        chosen.push_back(c);
        break;
      }
  return chosen;
}

}  // namespace switchback::bench
