// SPDX-License-Identifier: Apache-2.0
// Tuner: the table that look-ups of the hot path end in: queries that were answered before, with
// their answers. Readers take no lock and write nothing that others read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/config_source.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

struct Answer {
  ConfigChoice choice;
  TuneOrigin origin = TuneOrigin::fallback;  ///< fallback: there is no choice
  bool refused = false;                      ///< there is an entry, which cannot be used
};

/// Open addressing, insert only. A slot is written before it is published by its state; a table
/// that fills up is replaced by a larger one and kept for readers that are still in it.
class LookupTable {
 public:
  LookupTable() {
    tables_.push_back(std::make_unique<Table>(first_slots));
    publish();
  }

  /// Null if the query was not answered yet. The answer stays where it is.
  [[nodiscard]] const Answer* find(const ConfigQuery& query) const noexcept {
    const Table& table = *current_.load(std::memory_order_acquire);
    for (std::size_t at = hash(query) & table.mask;; at = (at + 1) & table.mask) {
      const Slot& slot = table.slots[at];
      if (!slot.used.load(std::memory_order_acquire)) return nullptr;
      if (slot.query == query) return &slot.answer;
    }
  }

  /// Adds an answer to a query that has none. One thread at a time.
  void insert(const ConfigQuery& query, const Answer& answer) {
    if (find(query) != nullptr) return;
    Table* table = tables_.back().get();
    if (2 * (count_ + 1) > table->slots.size()) {
      auto larger = std::make_unique<Table>(2 * table->slots.size());
      for (const Slot& slot : table->slots)
        if (slot.used.load(std::memory_order_relaxed)) larger->put(slot.query, slot.answer);
      tables_.push_back(std::move(larger));
      table = tables_.back().get();
      table->put(query, answer);
      publish();
    } else {
      table->put(query, answer);
    }
    ++count_;
  }

  /// Forgets every answer: something new is known. Readers may still get an old one.
  void clear() {
    tables_.push_back(std::make_unique<Table>(first_slots));
    count_ = 0;
    publish();
  }

  /// Mixes all words: shapes differ in few bits of few of them.
  static std::size_t hash(const ConfigQuery& query) noexcept {
    std::uint64_t h = static_cast<std::uint64_t>(query.op) * 0x9E3779B97F4A7C15ull;
    for (const std::int64_t word : query.words) {
      h = (h ^ static_cast<std::uint64_t>(word)) * 0xFF51AFD7ED558CCDull;
      h ^= h >> 29;
    }
    return static_cast<std::size_t>(h ^ (h >> 32));
  }

 private:
  struct Slot {
    std::atomic<bool> used = false;
    ConfigQuery query;
    Answer answer;
  };
  struct Table {
    explicit Table(std::size_t size) : slots(size), mask(size - 1) {}
    void put(const ConfigQuery& query, const Answer& answer) {
      std::size_t at = hash(query) & mask;
      while (slots[at].used.load(std::memory_order_relaxed))
        at = (at + 1) & mask;
      slots[at].query = query;
      slots[at].answer = answer;
      slots[at].used.store(true, std::memory_order_release);
    }
    std::vector<Slot> slots;
    std::size_t mask;
  };
  static constexpr std::size_t first_slots = 256;

  void publish() noexcept { current_.store(tables_.back().get(), std::memory_order_release); }

  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<const Table*> current_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace switchback::autotune
