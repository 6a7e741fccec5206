// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/snapshot.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "autotune/store/file.hpp"
#include "autotune/store/line.hpp"

namespace switchback::autotune {

std::string describe(const Warning& warning) {
  if (warning.line == 0) return fmt::format("{}: {}", warning.file.string(), warning.what);
  return fmt::format("{}:{}: {}", warning.file.string(), warning.line, warning.what);
}

void Snapshot::warn(const std::filesystem::path& file, std::int64_t line, std::string what) {
  if (warnings_.size() < max_warnings) warnings_.push_back({file, line, std::move(what)});
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
  files_.push_back(file);
  texts_.push_back(std::move(text));
  const std::string_view all = texts_.back();
  constexpr std::size_t usual_line_bytes = 700;
  lines_.reserve(lines_.size() + all.size() / usual_line_bytes);
  by_key_.reserve(by_key_.size() + all.size() / usual_line_bytes);

  for_each_line(all, [&](std::int64_t number, std::string_view line, bool ended) {
    LineInfo info = inspect(line, ended);
    if (info.kind == LineKind::blank) return;
    if (info.kind != LineKind::record) {
      ++skipped_;
      warn(file, number, std::move(info.why));
      return;
    }
    const auto index = static_cast<std::uint32_t>(lines_.size());
    lines_.push_back({static_cast<std::uint64_t>(line.data() - all.data()),
                      static_cast<std::uint32_t>(line.size()), number_of_file, none});
    if (info.type == RecordType::sample || info.type == RecordType::miss) return;
    Chain& chain = by_key_[info.sha];
    if (chain.first == none) {
      chain.first = index;
      order_.push_back(info.sha);
    } else {
      lines_[chain.last].next = index;
    }
    chain.last = index;
  });
}

std::string_view Snapshot::text_of(const Line& line) const noexcept {
  return std::string_view(texts_[line.file]).substr(line.offset, line.size);
}

bool Snapshot::parse_line(const Line& line, Record& record, std::vector<Warning>* warnings) const {
  std::string why;
  if (parse(text_of(line), record, why) == LineKind::record) return true;
  if (warnings != nullptr) {
    const std::string& text = texts_[line.file];
    const auto line_begin = text.begin() + static_cast<std::ptrdiff_t>(line.offset);
    warnings->push_back(
        {files_[line.file], 1 + std::count(text.begin(), line_begin, '\n'), std::move(why)});
  }
  return false;
}

std::vector<Record> Snapshot::find(const Key& key, std::vector<Warning>* warnings) const {
  std::vector<Record> records;
  Digest digest;
  if (!from_hex(key.sha, digest)) return records;
  const auto found = by_key_.find(digest);
  if (found == by_key_.end()) return records;
  for (std::uint32_t i = found->second.first; i != none; i = lines_[i].next) {
    Record record;
    if (parse_line(lines_[i], record, warnings) && record.key == key)
      records.push_back(std::move(record));
  }
  return records;
}

void Snapshot::for_each(const std::function<void(const Record&)>& visit,
                        std::vector<Warning>* warnings) const {
  for (const Line& line : lines_) {
    Record record;
    if (parse_line(line, record, warnings)) visit(record);
  }
}

void Snapshot::for_each_of_engine(std::string_view engine,
                                  const std::function<void(const Record&)>& visit) const {
  const std::string name = fmt::format("\"{}\"", engine);
  for (const Line& line : lines_) {
    Record record;
    if (text_of(line).find(name) != std::string_view::npos && parse_line(line, record, nullptr) &&
        record.candidate.engine == engine)
      visit(record);
  }
}

std::vector<std::string> Snapshot::key_hashes() const {
  std::vector<std::string> hashes;
  hashes.reserve(order_.size());
  for (const Digest& digest : order_)
    hashes.push_back(to_hex(digest));
  return hashes;
}

void Snapshot::for_each_key(const std::function<void(const Key&)>& visit) const {
  for (const Digest& digest : order_)
    for (std::uint32_t i = by_key_.at(digest).first; i != none; i = lines_[i].next) {
      Record record;
      if (!parse_line(lines_[i], record, nullptr)) continue;
      visit(record.key);
      break;
    }
}

std::string latest_time() {
  constexpr std::time_t day_s = 24 * 60 * 60;
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr) + day_s));
}

bool is_later(std::string_view a, std::string_view b) {
  const std::string latest = latest_time();
  const bool a_is_wrong = a > latest;
  const bool b_is_wrong = b > latest;
  return a_is_wrong != b_is_wrong ? b_is_wrong : a > b;
}

bool better_winner(const Record& a, const Record& b) {
  if (in_doubt(a) != in_doubt(b)) return in_doubt(b);
  if (a.effort != b.effort) return a.effort > b.effort;
  if (a.time != b.time) return is_later(a.time, b.time);
  return to_line(a) < to_line(b);
}

const Record* Snapshot::best(std::span<const Record> records,
                             const std::function<bool(const Record&)>& usable) {
  const Record* best = nullptr;
  std::vector<const Record*> fails;  // those that follow
  for (std::size_t i = records.size(); i-- > 0;) {
    const Record& record = records[i];
    if (record.type == RecordType::tombstone) break;
    if (record.type == RecordType::fail) fails.push_back(&record);
    if (record.type != RecordType::winner) continue;
    const bool failed = std::any_of(fails.begin(), fails.end(), [&](const Record* fail) {
      return fail->candidate == record.candidate && same_hard(fail->env, record.env);
    });
    if (failed || !usable(record)) continue;
    if (best == nullptr || better_winner(record, *best)) best = &record;
  }
  return best;
}

}  // namespace switchback::autotune
