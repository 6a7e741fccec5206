// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "autotune/store/file.hpp"

namespace switchback::autotune {

std::string describe(const Warning& warning) {
  if (warning.line == 0) return fmt::format("{}: {}", warning.file.string(), warning.what);
  return fmt::format("{}:{}: {}", warning.file.string(), warning.line, warning.what);
}

void Snapshot::warn(const std::filesystem::path& file, std::int64_t line, std::string what) {
  if (warnings_.size() < max_warnings) warnings_.push_back({file, line, std::move(what)});
}

void Snapshot::add_line(std::string_view line, std::string_view key, std::uint32_t file) {
  const auto index = static_cast<std::uint32_t>(lines_.size());
  lines_.push_back({line, file, none});
  Chain& chain = by_key_[key];
  if (chain.first == none)
    chain.first = index;
  else
    lines_[chain.last].next = index;
  chain.last = index;
}

void Snapshot::add_file(const std::filesystem::path& file) {
  std::string text;
  std::string why;
  switch (read_trusted_file(file, text, why)) {
    case ReadResult::missing:
      return;
    case ReadResult::failed:
      warn(file, 0, std::move(why));
      return;
    case ReadResult::ok:
      break;
  }
  const auto number_of_file = static_cast<std::uint32_t>(files_.size());
  const std::string_view all = texts_.emplace_back(std::move(text));
  files_.push_back({file, all});
  for_each_line(all, [&](std::int64_t number, std::string_view line) {
    std::string_view key = key_text(line);
    if (!key.empty() && line.ends_with('}')) return add_line(line, key, number_of_file);
    // The line does not look as to_line() writes it, but a user may have added spaces: parse it.
    std::string reason;
    if (const std::optional<Entry> entry = from_line(line, reason))
      return add_line(line, texts_.emplace_back(entry->key.json), number_of_file);
    ++skipped_;
    warn(file, number, std::move(reason));
  });
}

void Snapshot::add(const Entry& entry) {
  const std::string_view line = texts_.emplace_back(to_line(entry));
  add_line(line, key_text(line), none);
}

void Snapshot::parse(const Line& line, const Visit& visit, std::vector<Warning>* warnings) const {
  std::string why;
  if (const std::optional<Entry> entry = from_line(line.text, why)) return visit(*entry);
  if (warnings == nullptr) return;
  const File& file = files_[line.file];
  const std::string_view before =
      file.text.substr(0, static_cast<std::size_t>(line.text.data() - file.text.data()));
  warnings->push_back(
      {file.path, 1 + std::count(before.begin(), before.end(), '\n'), std::move(why)});
}

std::vector<Entry> Snapshot::find(const Key& key, std::vector<Warning>* warnings) const {
  std::vector<Entry> entries;
  const auto found = by_key_.find(key.json);
  if (found == by_key_.end()) return entries;
  for (std::uint32_t i = found->second.first; i != none; i = lines_[i].next)
    parse(
        lines_[i], [&](const Entry& entry) { entries.push_back(entry); }, warnings);
  return entries;
}

void Snapshot::for_each(const Visit& visit, std::vector<Warning>* warnings) const {
  for (const Line& line : lines_)
    parse(line, visit, warnings);
}

void Snapshot::for_each_with(std::string_view text, const Visit& visit) const {
  for (const Line& line : lines_)
    if (line.text.find(text) != std::string_view::npos) parse(line, visit, nullptr);
}

}  // namespace switchback::autotune
