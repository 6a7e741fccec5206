// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/compaction.hpp"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autotune/store/line.hpp"
#include "autotune/store/snapshot.hpp"

namespace switchback::autotune {

namespace {

struct Line {
  std::string_view text;
  Digest sha{};
  bool keep = false;
};

// Marks what stays of the lines of one key, which are in the order of the file.
void mark(std::vector<Line*>& lines, bool keep_samples) {
  std::vector<Record> records;
  std::vector<Line*> owners;  // of the records
  for (Line* const line : lines) {
    Record record;
    std::string why;
    if (parse(line->text, record, why) != LineKind::record) continue;
    if (record.type == RecordType::tombstone) {
      records.clear();
      owners.clear();
    }
    records.push_back(std::move(record));
    owners.push_back(line);
  }
  std::unordered_set<std::string_view> samples;
  std::vector<const Record*> fails;  // the last ones of their candidates
  std::vector<const Record*> seen;   // a winner of every hard environment
  for (std::size_t i = records.size(); i-- > 0;) {
    const Record& record = records[i];
    const auto beside = [&record](const Record* other) {
      return same_hard(other->env, record.env);
    };
    switch (record.type) {
      case RecordType::tombstone:
        owners[i]->keep = true;
        break;
      case RecordType::sample:
      case RecordType::miss:
        owners[i]->keep = keep_samples && samples.insert(owners[i]->text).second;
        break;
      case RecordType::fail:
        if (std::any_of(fails.begin(), fails.end(), [&](const Record* fail) {
              return beside(fail) && fail->candidate == record.candidate;
            }))
          break;
        fails.push_back(&record);
        owners[i]->keep = true;
        break;
      case RecordType::winner:
        if (std::any_of(seen.begin(), seen.end(), beside)) break;
        seen.push_back(&record);
        if (const Record* const best =
                Snapshot::best(records, [&](const Record& other) { return beside(&other); }))
          owners[static_cast<std::size_t>(best - records.data())]->keep = true;
        break;
    }
  }
}

}  // namespace

Compaction worth_keeping(std::string_view text, bool keep_samples) {
  std::vector<Line> lines;
  std::int64_t dropped = 0;
  for_each_line(text, [&](std::int64_t, std::string_view line, bool ended) {
    const LineInfo info = inspect(line, ended);
    if (info.kind == LineKind::bad) ++dropped;
    if (info.kind == LineKind::record) lines.push_back({line, info.sha, false});
    if (info.kind == LineKind::newer) lines.push_back({line, {}, true});
  });

  std::vector<Line*> records;
  for (Line& line : lines)
    if (!line.keep) records.push_back(&line);
  std::stable_sort(records.begin(), records.end(),
                   [](const Line* a, const Line* b) { return a->sha < b->sha; });
  std::vector<Line*> of_key;
  for (std::size_t i = 0; i < records.size(); ++i) {
    of_key.push_back(records[i]);
    if (i + 1 < records.size() && records[i + 1]->sha == records[i]->sha) continue;
    mark(of_key, keep_samples);
    of_key.clear();
  }

  Compaction result;
  for (const Line& line : lines) {
    if (!line.keep) {
      ++dropped;
      continue;
    }
    result.text += line.text;
    result.text += '\n';
  }
  result.dropped = dropped;
  return result;
}

}  // namespace switchback::autotune
