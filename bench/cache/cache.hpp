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
  std::string cache;  ///< the cache directory; empty: the library's default
  bool json = false;  ///< whether to print JSON: one object per line
  ContextOptions context;
};

/// Prints the paths of the tuning cache, and which setting determines each of them.
int cache_path(const CacheOptions& options);

struct CacheListOptions {
  std::string filter;  ///< lists only entries whose problem or winner contains this text
  bool all = false;    ///< lists the cache files of every machine, not only of this one
};
int cache_list(const CacheOptions& options, const CacheListOptions& what);

struct CacheExplainOptions {
  std::string key;                ///< the first digits of a key's name; empty: explain `shapes`
  std::vector<TuneShape> shapes;  ///< the layers whose problems are explained
  bool near_shapes = false;       ///< same meaning as TunerOptions::near_shapes
  bool strict = false;
};
int cache_explain(const CacheOptions& options, const CacheExplainOptions& what);

/// Checks every line of the tuning cache. With `run`, also runs each winner (the fastest
/// configuration of a problem) of this device, instruction set and thread count again and checks
/// its results, except winners whose measurement was disturbed.
int cache_verify(const CacheOptions& options, bool run);

/// Adds the entries of files and of other cache directories to the tuning cache.
int cache_import(const CacheOptions& options, const std::vector<std::string>& in);

}  // namespace switchback::bench
