// SPDX-License-Identifier: Apache-2.0
// Tuner: the entries of a cache's files as they were when read, and the entries that were added
// later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autotune/store/entry.hpp"

namespace switchback::autotune {

/// A line that was skipped, and why. As text: "machine.jsonl:17: it is not a valid JSON object".
struct Warning {
  std::filesystem::path file;
  std::int64_t line = 0;  ///< number from 1; 0: the whole file
  std::string what;
};
std::string describe(const Warning& warning);

/// Calls visit(line number from 1, line) for each line that is not blank. Carriage returns, and a
/// byte order mark before the first line, are removed: editors on other systems may add them.
template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) visit(number, line);
  }
}

/// The entries of a cache's files. Lines are kept as text and parsed only when their key is
/// requested, so that loading costs little more than reading.
class Snapshot {
 public:
  using Visit = std::function<void(const Entry&)>;

  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  /// Adds the lines of a file. A missing file adds nothing. A file that cannot be read, a
  /// directory, and a file of another kind add a warning. Lines without a key are skipped and
  /// counted, each with a warning (only the first `max_warnings` of them).
  void add_file(const std::filesystem::path& file);
  /// Adds an entry that was measured after the files were read. Throws what to_line() throws.
  void add(const Entry& entry);

  /// The entries of a key. A line that is not a valid entry is left out, and a warning is added to
  /// `warnings` if that is given.
  [[nodiscard]] std::vector<Entry> find(const Key& key,
                                        std::vector<Warning>* warnings = nullptr) const;
  /// Visits every entry. A line that is not a valid entry adds a warning, as in find().
  void for_each(const Visit& visit, std::vector<Warning>* warnings = nullptr) const;
  /// Visits the entries whose lines contain this text; other lines are not parsed.
  void for_each_with(std::string_view text, const Visit& visit) const;

  [[nodiscard]] std::size_t keys() const noexcept { return by_key_.size(); }
  /// The number of lines that have a key.
  [[nodiscard]] std::int64_t lines() const noexcept {
    return static_cast<std::int64_t>(lines_.size());
  }
  /// The number of lines that were skipped.
  [[nodiscard]] std::int64_t skipped() const noexcept { return skipped_; }
  [[nodiscard]] const std::vector<Warning>& warnings() const noexcept { return warnings_; }
  static constexpr std::size_t max_warnings = 20;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Line {
    std::string_view text;
    std::uint32_t file = none;  ///< index in files_; none: an entry that was added later
    std::uint32_t next = none;  ///< the next line of the same key
  };
  struct Chain {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };

  void add_line(std::string_view line, std::string_view key, std::uint32_t file);
  void parse(const Line& line, const Visit& visit, std::vector<Warning>* warnings) const;
  void warn(const std::filesystem::path& file, std::int64_t line, std::string what);

  std::deque<std::string> texts_;  ///< a deque, since lines and keys point into them
  struct File {
    std::filesystem::path path;
    std::string_view text;
  };
  std::vector<File> files_;
  std::vector<Line> lines_;
  std::unordered_map<std::string_view, Chain> by_key_;
  std::int64_t skipped_ = 0;
  std::vector<Warning> warnings_;
};

}  // namespace switchback::autotune
