// SPDX-License-Identifier: Apache-2.0
// Entry zone: the tuner: measures which engine and configuration is the fastest for each problem,
// keeps that in files that many processes and machines share, and hands it to the operations of a
// Context.
//
//   auto tuner = switchback::Tuner::open(context);   // reads the cache of this machine
//   tuner->attach(context);                          // from here on operations look it up
//
// `switchback-bench tune` fills a cache; so does Tuner::tune(). A configuration changes speed,
// never a code or an int32 sum.
//
// Modes record and tune, and Tuner::tune(), write to files under a lock that other processes may
// hold. They wait no longer than a second for it, in all: then a warning says so, and what is to be
// written is kept and tried again with the next, without waiting, until the lock is had.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/types.hpp"

namespace switchback {

/// What is done with a problem that a Context runs into.
enum class TuneMode : std::int32_t {
  off = 0,   ///< nothing is looked up
  read = 1,  ///< looked up; the default configuration where nothing is known
  /// As read, and what was not known is written to a file that `tune` takes: the first 65536
  /// distinct problems.
  record = 2,
  /// What is not known is measured then and there (never while a stream is captured): the first
  /// 16384 problems.
  tune = 3,
  require = 4  ///< what is not known is an error
};
/// "off", "read", "record", "tune", "require"; "unknown" for any other value.
SWITCHBACK_API std::string_view tune_mode_name(TuneMode mode) noexcept;
/// The inverse. Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API TuneMode parse_tune_mode(std::string_view name);

struct TunerOptions {
  /// In words; empty: $SWITCHBACK_TUNE, else read.
  std::string mode = {};
  /// Where caches lie; empty: $SWITCHBACK_TUNE_CACHE, else $XDG_CACHE_HOME/switchback, else
  /// $HOME/.cache/switchback. It need not exist to be read.
  std::string cache_directory = {};
  /// A read-only list behind the cache; empty: $SWITCHBACK_TUNE_SYSTEM, else what was installed
  /// with the library (share/switchback/configs beside its lib folder).
  std::string system_directory = {};
  /// Mode record: the file; empty: $SWITCHBACK_TUNE_RECORD, else recorded.jsonl in the cache.
  std::string record_file = {};
  /// Whether a problem that differs in its number of rows M from one that was measured takes that
  /// one's configuration, if both are in one bucket: powers of two and 3/2 of them above 16.
  bool near_shapes = false;
  /// Whether a driver, a product name or a version of this library other than those measured with
  /// is a reason not to use an entry.
  bool strict = false;
  /// Mode tune: seconds for a problem.
  double budget_per_key_s = 0.5;
  /// Called with what a person should know, once each: an entry that cannot be used, a line that
  /// cannot be read, a cache that cannot be written. From any thread that uses the Context.
  std::function<void(const std::string&)> warn;
};

/// Where a configuration came from.
enum class TuneOrigin : std::int32_t {
  fallback = 0,    ///< nothing is known: the default configuration
  exact = 1,       ///< the cache
  near_shape = 2,  ///< the cache, from another number of rows
  system_list = 3  ///< what was installed with the library
};
SWITCHBACK_API std::string_view tune_origin_name(TuneOrigin origin) noexcept;

/// Look-ups so far.
struct TunerCounters {
  std::int64_t hits = 0;
  std::int64_t misses = 0;
  std::int64_t refused = 0;  ///< misses among them for which there is an entry that cannot be used
  /// Bytes that are remembered of look-ups, however many distinct problems there were: below 2 MB
  /// and 350 bytes for each problem that the cache and the system list know. Mode record adds 1 MB,
  /// and mode tune 350 bytes for each problem it measures.
  std::int64_t memory_bytes = 0;
};

/// One layer to measure everything for.
struct TuneShape {
  std::int64_t rows = 0;          ///< M, tokens
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  DType dtype = DType::f32;
  bool bias = false;  ///< also what a layer with a bias (of the layer's type) comes to
};

struct TuneLimits {
  double budget_s = 0;          ///< for all of it, warm-up and checks included; 0: no bound
  double budget_per_key_s = 0;  ///< for one problem; 0: its share of budget_s, or no bound
  int max_candidates = 0;       ///< besides the default; 0: all
  bool force = false;           ///< also what is known already with as much effort
};

struct TuneSummary {
  std::int64_t keys = 0;     ///< problems of these shapes
  std::int64_t known = 0;    ///< not measured: known already
  std::int64_t tuned = 0;    ///< measured
  std::int64_t changed = 0;  ///< of those: another configuration than the default won
  std::int64_t cut = 0;      ///< left to the default: the time was over, or they could not run
  std::int64_t failed = 0;   ///< candidates that were wrong or could not run
  std::int64_t lost = 0;     ///< measured, and known to this process alone: warnings say why
};

struct TunerState;  // autotune/tuner_state.hpp

/// Of one machine and kind of device. Shared by any number of Contexts and threads.
class SWITCHBACK_API Tuner {
 public:
  /// Reads the cache of this Context's device once. Throws Error(invalid_argument) for options that
  /// are none; a file that cannot be read is a warning.
  static std::shared_ptr<Tuner> open(const Context& context, const TunerOptions& options = {});
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Makes the Context look here, which must be of the same kind of device. The Context keeps what
  /// it needs alive. In mode off it looks nowhere.
  void attach(Context& context) const;

  [[nodiscard]] TuneMode mode() const noexcept;
  /// The file that holds this machine's entries; empty if there is no cache directory.
  [[nodiscard]] std::string cache_file() const;
  [[nodiscard]] TunerCounters counters() const noexcept;
  /// What `warn` was or would have been called with.
  [[nodiscard]] std::vector<std::string> warnings() const;

  /// Measures every problem that layers of these shapes come to on this Context, and the mode of
  /// each pass, and adds what it finds to the cache, one problem at a time: what was measured when
  /// it is interrupted stays. A cache that cannot be written is a warning; then it knows for as
  /// long as it lives. `progress` is called after each problem; false ends it.
  TuneSummary tune(Context& context, const std::vector<TuneShape>& shapes,
                   const TuneLimits& limits = {},
                   const std::function<bool(const TuneSummary&)>& progress = {});

  /// The library's own view. Not part of the API.
  [[nodiscard]] TunerState& state() const noexcept { return *state_; }

 private:
  explicit Tuner(std::shared_ptr<TunerState> state) noexcept;
  std::shared_ptr<TunerState> state_;
};

}  // namespace switchback
