// SPDX-License-Identifier: Apache-2.0
// Studies: the published sizes and times of the decoder, and a table that compares them with our
// own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "studies/transformer/setting.hpp"

namespace switchback::bench::transformer {

/// A row of data/reference/transformer_warmup.csv, in milliseconds: ten steps on a GPU.
struct Published {
  std::string_view size;
  Pass pass;    ///< forward or backward, each by itself
  bool warmup;  ///< after a step that is not counted
  double min_ms, max_ms, mean_ms, std_ms;
};
const std::vector<Published>& published_times();
/// The published number of sequences in a step, and of tokens in the vocabulary.
inline constexpr std::int64_t published_batch = 4;
inline constexpr std::int64_t published_vocabulary = 10000;
/// Null: not published.
const Published* published(std::string_view size, Pass pass, bool warmup);

/// The published tables, each row next to ours from the `records` of mode standard at the published
/// batch and vocabulary. For sizes without a record, shows the memory that a `pass` in these modes
/// would need.
std::string tables_of_published(std::span<const Json> records, const Setting& like,
                                const std::vector<Mode>& modes);

}  // namespace switchback::bench::transformer
