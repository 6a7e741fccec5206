// SPDX-License-Identifier: Apache-2.0
// Studies: published sizes and times of a decoder, and a table that compares them with our own
// times.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "studies/transformer/setting.hpp"

namespace switchback::bench::transformer {

/// A row of data/reference/transformer_warmup.csv: the times of ten steps on a GPU, in
/// milliseconds.
struct Published {
  std::string_view size;
  Pass pass;    ///< forward or backward; the time is that of this pass alone
  bool warmup;  ///< whether an uncounted step ran before the timed ones
  double min_ms, max_ms, mean_ms, std_ms;
};
const std::vector<Published>& published_times();
/// In the published runs: the number of sequences in a step, and of tokens in the vocabulary.
inline constexpr std::int64_t published_batch = 4;
inline constexpr std::int64_t published_vocabulary = 10000;
/// The published times of a size and pass; null if none were published.
const Published* published(std::string_view size, Pass pass, bool warmup);

/// The published tables, each row next to our time from the `records` of mode standard at the
/// published batch and vocabulary. For sizes without a record, the table has the memory that a pass
/// like `like` in these modes would need.
std::string tables_of_published(std::span<const Json> records, const Setting& like,
                                const std::vector<Mode>& modes);

}  // namespace switchback::bench::transformer
