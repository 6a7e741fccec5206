// SPDX-License-Identifier: Apache-2.0
#include "core/word_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace switchback::core {

namespace {

// Names are looked up only for values up to this one, because few values of a word have names.
constexpr std::int64_t most_named = 64;

std::string_view name_of_value(const Word& word, std::int64_t value) noexcept {
  return word.accepts(value) ? word.value_name(value) : std::string_view();
}

}  // namespace

std::string out_of_range(std::span<const Word> table, std::span<const std::int64_t> words) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Word& word = table[i];
    if (word.accepts(words[i])) continue;
    if (!word.rule.empty()) return fmt::format("{}={}; {}", word.name, words[i], word.rule);
    if (word.most == std::numeric_limits<std::int64_t>::max())
      return fmt::format("{}={}; it must be at least {}", word.name, words[i], word.least);
    return fmt::format("{}={}; it must be {} to {}", word.name, words[i], word.least, word.most);
  }
  return {};
}

std::string no_configuration(std::span<const Word> table, const ConfigChoice& choice) {
  const std::string reason = out_of_range(table, choice.words);
  return fmt::format("its numbers are not a valid configuration in this version{}{}",
                     reason.empty() ? "" : ": ", reason);
}

std::string value_text(const Word& word, std::int64_t value) {
  if (word.value_name == nullptr) return fmt::format("{}", value);
  const std::string_view name = name_of_value(word, value);
  return name.empty() ? fmt::format("?{}", value) : std::string(name);
}

bool parse_value(const Word& word, std::string_view text, std::int64_t& value) noexcept {
  if (word.value_name == nullptr || text.empty()) return false;
  for (std::int64_t i = word.least; i <= std::min(word.most, most_named); ++i)
    if (name_of_value(word, i) == text) {
      value = i;
      return true;
    }
  return false;
}

}  // namespace switchback::core
