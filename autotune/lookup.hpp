// SPDX-License-Identifier: Apache-2.0
// Tuner: the tables that look-ups on the hot path read: the answers to earlier queries, and the set
// of queries for which no configuration is known. Both hold at most a fixed number of queries.
// Readers take no lock and do not write to shared memory; only one thread at a time writes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/config_source.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

struct Answer {
  ConfigChoice choice;
  TuneOrigin origin = TuneOrigin::fallback;  ///< fallback: `choice` is not set
  bool refused = false;                      ///< the cache has an entry, but it cannot be used
  /// Whether the choice comes from an entry and not from a default.
  [[nodiscard]] bool is_entry() const noexcept {
    return origin != TuneOrigin::fallback && origin != TuneOrigin::validated;
  }
};

/// Hashes all words of a query, because shapes differ in only a few bits of a few words. The lanes
/// are independent of each other, which keeps the latency short: every look-up waits for the hash.
inline std::uint64_t hash_of(const ConfigQuery& query) noexcept {
  constexpr std::size_t lanes = 4;
  static_assert(std::tuple_size_v<decltype(ConfigQuery::words)> % lanes == 0);
  const auto mix = [](std::uint64_t h, std::uint64_t word) {
    h = (h ^ word) * 0xFF51AFD7ED558CCDull;
    return h ^ (h >> 29);
  };
  std::array<std::uint64_t, lanes> lane{};
  lane.fill(static_cast<std::uint64_t>(query.header()) * 0x9E3779B97F4A7C15ull);
  for (std::size_t i = 0; i < query.words.size(); i += lanes)
    for (std::size_t j = 0; j < lanes; ++j)
      lane[j] = mix(lane[j], static_cast<std::uint64_t>(query.words[i + j]));
  std::uint64_t h = lane[0];
  for (std::size_t j = 1; j < lanes; ++j)
    h = mix(h, lane[j]);
  return h ^ (h >> 32);
}

/// A hash table of queries and their answers, with open addressing. Slots point to entries, which
/// are reused but never freed while the table lives. A reader checks an entry's version before and
/// after reading it; the version is odd while the entry is written. A reader that meets a write
/// finds nothing, as in an empty table.
class LookupTable {
 public:
  /// Makes a table that holds at most `most` answers.
  explicit LookupTable(std::size_t most)
      : most_(most), slots_(std::bit_ceil(2 * std::max<std::size_t>(most, 1))) {}

  [[nodiscard]] bool find(const ConfigQuery& query, std::uint64_t hash,
                          Answer& answer) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    for (std::size_t i = 0; i <= mask; ++i, at = (at + 1) & mask) {
      const Entry* entry = slots_[at].load(std::memory_order_acquire);
      if (entry == nullptr) return false;
      if (entry->read(query, answer)) return true;
    }
    return false;
  }

  /// Adds an answer to a query that has none; false if the table is full.
  bool insert(const ConfigQuery& query, std::uint64_t hash, const Answer& answer) {
    Answer ignored;
    if (find(query, hash, ignored)) return true;
    if (count_ >= most_) return false;
    if (count_ == blocks_.size() * block_entries)
      blocks_.push_back(std::make_unique<std::array<Entry, block_entries>>());
    Entry& entry = (*blocks_[count_ / block_entries])[count_ % block_entries];
    entry.write(query, answer);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].load(std::memory_order_relaxed) != nullptr)
      at = (at + 1) & mask;
    slots_[at].store(&entry, std::memory_order_release);
    ++count_;
    return true;
  }

  /// Removes every answer. Readers that run at the same time may still get a removed answer.
  void clear() noexcept {
    if (count_ == 0) return;
    for (std::atomic<const Entry*>& slot : slots_)
      slot.store(nullptr, std::memory_order_relaxed);
    count_ = 0;
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return slots_.size() * sizeof(slots_[0]) + blocks_.size() * sizeof(*blocks_[0]);
  }

 private:
  // One word more than a query or a choice has: for a query its header, for an answer its origin
  // and whether an entry was refused.
  static constexpr std::size_t query_words = std::tuple_size_v<decltype(ConfigQuery::words)> + 1;
  static constexpr std::size_t answer_words = std::tuple_size_v<decltype(ConfigChoice::words)> + 1;
  static constexpr std::size_t block_entries = 64;

  class Entry {
   public:
    // Loads acquire and stores release, so that a reader that saw any word of a later write also
    // sees the changed version.
    bool read(const ConfigQuery& query, Answer& answer) const noexcept {
      const std::uint32_t version = version_.load(std::memory_order_acquire);
      if (version % 2 != 0) return false;
      if (query_[0].load(std::memory_order_acquire) != query.header()) return false;
      for (std::size_t i = 1; i < query_words; ++i)
        if (query_[i].load(std::memory_order_acquire) != query.words[i - 1]) return false;
      const std::int64_t kind = answer_[0].load(std::memory_order_acquire);
      for (std::size_t i = 1; i < answer_words; ++i)
        answer.choice.words[i - 1] = answer_[i].load(std::memory_order_acquire);
      answer.origin = static_cast<TuneOrigin>(kind / 2);
      answer.refused = kind % 2 != 0;
      return version_.load(std::memory_order_relaxed) == version;
    }
    void write(const ConfigQuery& query, const Answer& answer) noexcept {
      const std::uint32_t version = version_.load(std::memory_order_relaxed);
      version_.store(version + 1, std::memory_order_relaxed);
      query_[0].store(query.header(), std::memory_order_release);
      answer_[0].store(static_cast<std::int64_t>(answer.origin) * 2 + (answer.refused ? 1 : 0),
                       std::memory_order_release);
      for (std::size_t i = 1; i < query_words; ++i)
        query_[i].store(query.words[i - 1], std::memory_order_release);
      for (std::size_t i = 1; i < answer_words; ++i)
        answer_[i].store(answer.choice.words[i - 1], std::memory_order_release);
      version_.store(version + 2, std::memory_order_release);
    }

   private:
    std::atomic<std::uint32_t> version_ = 0;
    std::array<std::atomic<std::int64_t>, query_words> query_{};
    std::array<std::atomic<std::int64_t>, answer_words> answer_{};
  };

  std::size_t most_;
  std::vector<std::atomic<const Entry*>> slots_;
  std::vector<std::unique_ptr<std::array<Entry, block_entries>>> blocks_;
  std::size_t count_ = 0;
};

/// A set of queries, of which it stores only the hashes. It cannot tell queries with equal hashes
/// apart, but equal hashes are very rare.
class QuerySet {
 public:
  explicit QuerySet(std::size_t most)
      : most_(most), slots_(std::bit_ceil(2 * std::max<std::size_t>(most, 1))) {}

  [[nodiscard]] bool contains(std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
      const std::uint64_t there = slots_[at].load(std::memory_order_relaxed);
      if (there == 0) return false;
      if (there == stored(hash)) return true;
    }
  }
  /// Adds a query's hash. Returns false if the set is full.
  bool insert(std::uint64_t hash) noexcept {
    if (contains(hash)) return true;
    if (count_ >= most_) return false;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].load(std::memory_order_relaxed) != 0)
      at = (at + 1) & mask;
    slots_[at].store(stored(hash), std::memory_order_relaxed);
    ++count_;
    return true;
  }
  void clear() noexcept {
    if (count_ == 0) return;
    for (std::atomic<std::uint64_t>& slot : slots_)
      slot.store(0, std::memory_order_relaxed);
    count_ = 0;
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return slots_.size() * sizeof(slots_[0]); }

 private:
  // The value that stands for a hash. It is never 0, because 0 marks an empty slot.
  static std::uint64_t stored(std::uint64_t hash) noexcept { return hash == 0 ? 1 : hash; }

  std::size_t most_;
  std::vector<std::atomic<std::uint64_t>> slots_;
  std::size_t count_ = 0;
};

}  // namespace switchback::autotune
