// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench cache`: shows the tuning caches of this and other machines, explains why
// an entry is used or not, and moves entries from one machine to another.
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

/// Prints the paths in use and which setting determines each.
int cache_path(const CacheOptions& options);

struct CacheListOptions {
  std::optional<ConfigOp> op;
  std::string filter;  ///< part of the text of a problem or a winner
  bool all = false;    ///< every machine's
};
int cache_list(const CacheOptions& options, const CacheListOptions& what);

/// All that is known of one key; `key` is the beginning of its hash.
int cache_show(const CacheOptions& options, const std::string& key);

struct CacheExplainOptions {
  std::string key;                ///< the beginning of a hash, or
  std::vector<TuneShape> shapes;  ///< every problem of these layers
  bool near_shapes = false;       ///< see TunerOptions
  bool strict = false;
};
int cache_explain(const CacheOptions& options, const CacheExplainOptions& what);

/// Reads every line; with `run` also proves each winner of this Context again, unless it is in
/// doubt.
int cache_verify(const CacheOptions& options, bool run);

struct CacheMergeOptions {
  std::string out;
  std::vector<std::string> in;  ///< files and cache directories
  bool force = false;           ///< `out` may exist
};
int cache_merge(const CacheOptions& options, const CacheMergeOptions& what);

struct CacheExportOptions {
  std::string out;
  bool winners = false;   ///< without samples
  bool doubtful = false;  ///< also winners in doubt, and the samples of their measurements
  bool all = false;       ///< every machine's
  bool force = false;     ///< `out` may exist
};
int cache_export(const CacheOptions& options, const CacheExportOptions& what);

struct CacheImportOptions {
  std::vector<std::string> in;  ///< files and cache directories
  bool forgotten = false;       ///< also records of keys that were forgotten here since
};
int cache_import(const CacheOptions& options, const CacheImportOptions& what);

struct CachePruneOptions {
  std::int64_t older_than_days = 0;  ///< 0: any age
  bool samples = false;
  bool stale = false;
  std::string key;  ///< the beginning of a hash
  bool dry_run = false;
};
int cache_prune(const CacheOptions& options, const CachePruneOptions& what);

}  // namespace switchback::bench
