// SPDX-License-Identifier: Apache-2.0
// Tuner: which lines of a cache file are worth keeping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::autotune {

struct Compaction {
  std::string text;          ///< the lines that stay, each with its newline
  std::int64_t dropped = 0;  ///< lines; blank ones do not count
};

/// See Store::compact().
Compaction worth_keeping(std::string_view text, bool keep_samples);

}  // namespace switchback::autotune
