// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/merge.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "autotune/store/snapshot.hpp"

namespace switchback::autotune {

namespace {

// A record and its line. The line identifies repeats and breaks ties of order.
struct Entry {
  const Record* record = nullptr;
  std::string line;

  friend bool operator==(const Entry& a, const Entry& b) { return a.line == b.line; }
};

// Within one second a fail comes last: to be careful, it is taken to concern a winner before it.
bool comes_before(const Entry& a, const Entry& b) {
  const auto order = [](const Entry& entry) {
    return std::tuple(std::string_view(entry.record->time), entry.record->type == RecordType::fail,
                      std::string_view(entry.line));
  };
  return order(a) < order(b);
}

// better_winner() for records whose texts are already known.
bool better(const Entry& a, const Entry& b) {
  const bool tied = in_doubt(*a.record) == in_doubt(*b.record) &&
                    a.record->effort == b.record->effort && a.record->time == b.record->time;
  return tied ? a.line < b.line : better_winner(*a.record, *b.record);
}

// The records of one key since it was last forgotten.
struct Problem {
  Entry tombstone;             // the latest; no record if there is none
  std::vector<Entry> others;   // samples and fails
  std::vector<Entry> winners;  // of each cache and hard environment one
};

bool later_tombstone(const Entry& a, const Entry& b) {
  if (a.record == nullptr || b.record == nullptr) return b.record == nullptr && a.record != nullptr;
  return comes_before(b, a);
}

Entry* winner_beside(std::span<Entry> winners, const Record& record) {
  for (Entry& winner : winners)
    if (same_hard(winner.record->env, record.env)) return &winner;
  return nullptr;
}

// Adds the records of a key from one cache, in the order of its file.
void add_cache(Problem& problem, std::span<const Record* const> records) {
  Entry tombstone;
  std::size_t begin = records.size();
  while (begin > 0 && records[begin - 1]->type != RecordType::tombstone)
    --begin;
  if (begin > 0) tombstone = {records[begin - 1], to_line(*records[begin - 1])};
  if (later_tombstone(problem.tombstone, tombstone)) return;
  if (later_tombstone(tombstone, problem.tombstone)) problem = {std::move(tombstone), {}, {}};

  const std::size_t own = problem.winners.size();
  for (const Record* const record : records.subspan(begin)) {
    Entry entry{record, to_line(*record)};
    if (record->type != RecordType::winner) {
      problem.others.push_back(std::move(entry));
    } else if (Entry* const rival =
                   winner_beside(std::span(problem.winners).subspan(own), *record)) {
      if (better(entry, *rival)) *rival = std::move(entry);
    } else {
      problem.winners.push_back(std::move(entry));
    }
  }
}

// Appends what remains of a key.
void finish(Problem& problem, std::vector<Record>& merged, std::vector<Conflict>& conflicts) {
  std::vector<Entry> kept = std::move(problem.others);
  std::sort(problem.winners.begin(), problem.winners.end(), better);
  problem.winners.erase(std::unique(problem.winners.begin(), problem.winners.end()),
                        problem.winners.end());
  std::vector<Entry> best;
  for (Entry& winner : problem.winners) {
    const Entry* const rival = winner_beside(best, *winner.record);
    if (rival == nullptr)
      best.push_back(std::move(winner));
    else if (!in_doubt(*winner.record) && !(rival->record->candidate == winner.record->candidate))
      conflicts.push_back({*rival->record, *winner.record});
  }
  kept.insert(kept.end(), std::make_move_iterator(best.begin()),
              std::make_move_iterator(best.end()));
  std::sort(kept.begin(), kept.end(), comes_before);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());

  // The tombstone comes first, whatever the times say: every remaining record was written after it.
  if (problem.tombstone.record != nullptr) merged.push_back(*problem.tombstone.record);
  for (const Entry& entry : kept)
    merged.push_back(*entry.record);
}

}  // namespace

std::vector<Record> merge(std::span<const std::vector<Record>> caches,
                          std::vector<Conflict>& conflicts) {
  std::map<std::string_view, Problem> problems;
  for (const std::vector<Record>& cache : caches) {
    std::map<std::string_view, std::vector<const Record*>> by_key;
    for (const Record& record : cache)
      by_key[record.key.json].push_back(&record);
    for (const auto& [key, records] : by_key)
      add_cache(problems[key], records);
  }
  std::vector<Record> merged;
  for (auto& [key, problem] : problems)
    finish(problem, merged, conflicts);
  return merged;
}

}  // namespace switchback::autotune
