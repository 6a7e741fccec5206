// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench cache`: shows the tuning caches of this and other machines, explains why
// an entry is used or not, and copies entries from one machine to another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config_source.hpp"
#include "switchback/context.hpp"
#include "switchback/tuner.hpp"

namespace switchback::bench {

struct CacheOptions {
  std::string cache;  ///< directory; empty: the library's default
  bool json = false;  ///< one JSON object per line
  ContextOptions context;
};

/// Prints the paths in use, and which setting determines each of them.
int cache_path(const CacheOptions& options);

struct CacheListOptions {
  std::optional<ConfigOp> op;
  std::string filter;  ///< a part of the text of a problem or a winner
  bool all = false;    ///< the files of every machine
};
int cache_list(const CacheOptions& options, const CacheListOptions& what);

struct CacheExplainOptions {
  std::string key;                ///< the beginning of a key's name, or:
  std::vector<TuneShape> shapes;  ///< all problems of these layers
  bool near_shapes = false;       ///< see TunerOptions
  bool strict = false;
};
int cache_explain(const CacheOptions& options, const CacheExplainOptions& what);

/// Reads every line. With `run`, also validates each winner of this Context again, unless it is in
/// doubt.
int cache_verify(const CacheOptions& options, bool run);

/// Adds the entries of files and cache directories to the cache.
int cache_import(const CacheOptions& options, const std::vector<std::string>& in);

}  // namespace switchback::bench
