// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: CublasLtRow, which stores a CublasLtChoice in three words of a ConfigChoice. It is
// a row in the table of a configuration's words (core/word_table.hpp). Caches contain the choice
// attribute by attribute, see `written`.
#pragma once

#include <array>
#include <limits>

#include "core/word_table.hpp"
#include "gemm/cublaslt/choice.hpp"

namespace switchback {

/// The name of the first of the three words of a CublasLtChoice.
inline constexpr std::string_view cublaslt_word = "cublaslt";

template <auto Member>
struct CublasLtRow {
  // Any number is allowed here, because out_of_range() checks the choice as a whole.
  static constexpr core::Word word_of(std::string_view name) noexcept {
    return {.name = name,
            .least = std::numeric_limits<std::int64_t>::min(),
            .written = core::Written::elsewhere};
  }
  std::array<core::Word, 3> words = {word_of(cublaslt_word), word_of("cublaslt_2"),
                                     word_of("cublaslt_3")};

  template <class T>
  void write(const T& from, std::int64_t* to) const noexcept {
    for (const std::int64_t word : to_words(from.*Member))
      *to++ = word;
  }
  template <class T>
  void read(const std::int64_t* from, T& to) const noexcept {
    to.*Member = from_words({from[0], from[1], from[2]});
  }
};

}  // namespace switchback
