// SPDX-License-Identifier: Apache-2.0
// Core: tables of the members of a problem or a configuration. One row gives a member's name in
// caches and its allowed values. Conversions to words and back, range checks and text are derived
// from the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "core/config_source.hpp"

namespace switchback::core {

/// How a word (one number of a query or a choice) is written to a key or a candidate of a cache.
enum class Written {
  always,
  /// Other code writes the word: with the machine's description, or attribute by attribute.
  elsewhere,
};

/// One number of a ConfigQuery or a ConfigChoice. Its name is part of caches: names may be added,
/// but their meaning never changes.
struct Word {
  std::string_view name;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  /// Returns the name of a value from `least` to `most`, empty if the value has none. If the
  /// function is null, values are written as numbers.
  std::string_view (*value_name)(std::int64_t value) noexcept = nullptr;
  /// The error message for a value outside of the limits; if empty, the message states the limits.
  std::string_view rule = {};
  Written written = Written::always;

  [[nodiscard]] constexpr bool accepts(std::int64_t value) const noexcept {
    return value >= least && value <= most;
  }
};

/// Makes a Word::value_name from the function that names an enum's values (it returns "unknown" for
/// a value without a name).
template <auto NameOf, class Enum>
std::string_view value_name(std::int64_t value) noexcept {
  const std::string_view name = NameOf(static_cast<Enum>(value));
  return name == "unknown" ? std::string_view() : name;
}
template <class Enum>
constexpr std::int64_t number(Enum value) noexcept {
  return static_cast<std::int64_t>(value);
}

/// A table row for a member that is stored as one word: an integer, a flag or an enumeration.
template <auto Member>
struct MemberRow {
  std::array<Word, 1> words;

  template <class T>
  constexpr void write(const T& from, std::int64_t* to) const noexcept {
    *to = static_cast<std::int64_t>(from.*Member);
  }
  template <class T>
  constexpr void read(const std::int64_t* from, T& to) const noexcept {
    to.*Member = static_cast<std::remove_cvref_t<decltype(to.*Member)>>(*from);
  }
};
template <auto Member>
constexpr MemberRow<Member> row(const Word& word) {
  return {{word}};
}

/// A table row for a word that encodes several members. get(object) makes the word, set(object,
/// word) decodes it.
template <class Get, class Set>
struct ComputedRow {
  std::array<Word, 1> words;
  Get get;
  Set set;

  template <class T>
  constexpr void write(const T& from, std::int64_t* to) const noexcept {
    *to = get(from);
  }
  template <class T>
  constexpr void read(const std::int64_t* from, T& to) const noexcept {
    set(to, *from);
  }
};
template <class Get, class Set>
constexpr ComputedRow<Get, Set> row(const Word& word, Get get, Set set) {
  return {{word}, get, set};
}

/// The table of the members of one type: its rows, in the order of their words.
template <class... Rows>
class WordTable {
 public:
  constexpr explicit WordTable(Rows... rows) : rows_(rows...) {
    std::size_t at = 0;
    const auto add = [&](const auto& row) {
      for (const Word& word : row.words)
        words_[at++] = word;
    };
    (add(rows), ...);
  }

  [[nodiscard]] constexpr std::span<const Word> words() const noexcept { return words_; }

  template <class T, std::size_t Size>
  constexpr void write(const T& from, std::array<std::int64_t, Size>& to) const noexcept {
    static_assert(count <= Size, "the table has more words than a query or a choice");
    std::size_t at = 0;
    std::apply([&](const auto&... row) { (write_row(row, from, to.data(), at), ...); }, rows_);
  }

  /// Converts words to the members of `to`, the inverse of write(). Returns false, and leaves `to`
  /// unchanged, if a word is outside of its limits.
  template <class T, std::size_t Size>
  constexpr bool read(const std::array<std::int64_t, Size>& from, T& to) const noexcept {
    static_assert(count <= Size, "the table has more words than a query or a choice");
    for (std::size_t i = 0; i < count; ++i)
      if (!words_[i].accepts(from[i])) return false;
    std::size_t at = 0;
    std::apply([&](const auto&... row) { (read_row(row, from.data(), to, at), ...); }, rows_);
    return true;
  }

 private:
  static constexpr std::size_t count =
      (std::tuple_size_v<std::remove_cvref_t<decltype(Rows::words)>> + ...);

  template <class Row, class T>
  static constexpr void write_row(const Row& row, const T& from, std::int64_t* to,
                                  std::size_t& at) noexcept {
    row.write(from, to + at);
    at += row.words.size();
  }
  template <class Row, class T>
  static constexpr void read_row(const Row& row, const std::int64_t* from, T& to,
                                 std::size_t& at) noexcept {
    row.read(from + at, to);
    at += row.words.size();
  }

  std::tuple<Rows...> rows_;
  std::array<Word, count> words_{};
};

/// Converts a problem to a ConfigQuery with the table of its members.
template <class Problem, class Table>
ConfigQuery make_query(ConfigOp op, const ConfigOrigin& origin, const Table& table,
                       const Problem& problem) noexcept {
  ConfigQuery query;
  query.op = op;
  query.origin = origin;
  table.write(problem, query.words);
  return query;
}
/// Converts a ConfigQuery to a problem, the inverse of make_query(). Returns false, and leaves
/// `problem` unchanged, if the words are invalid. The query's origin is copied if the problem has
/// one.
template <class Problem, class Table>
bool read_query(ConfigOp op, const Table& table, const ConfigQuery& query,
                Problem& problem) noexcept {
  if (query.op != op || !is_valid(query.origin) || !table.read(query.words, problem)) return false;
  if constexpr (std::is_base_of_v<ConfigOrigin, Problem>)
    static_cast<ConfigOrigin&>(problem) = query.origin;
  return true;
}
/// Converts a configuration to a ConfigChoice with the table of its members.
template <class Config, class Table>
ConfigChoice make_choice(const Table& table, const Config& config) noexcept {
  ConfigChoice choice;
  table.write(config, choice.words);
  return choice;
}

/// Describes the first word outside of its limits, as in "mc=-1; it must be at least 0". Empty if
/// all words are within their limits.
std::string out_of_range(std::span<const Word> table, std::span<const std::int64_t> words);

/// Why the words of a choice that from_choice() refused are not a valid configuration.
std::string no_configuration(std::span<const Word> table, const ConfigChoice& choice);

/// The text for a value of a word: its name, such as "avx2", if the values of the word have names
/// ("?7" for a value without one); else the number.
std::string value_text(const Word& word, std::int64_t value);
/// Sets `value` to the word's value that has the name `text`; false if there is no such value.
bool parse_value(const Word& word, std::string_view text, std::int64_t& value) noexcept;

}  // namespace switchback::core
