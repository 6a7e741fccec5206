// SPDX-License-Identifier: Apache-2.0
// Entry zone: the tuner, which measures the fastest engine and configuration for each problem,
// keeps the results in files that many processes and machines can share, and gives them to the
// operations of a Context.
//
//   auto tuner = switchback::Tuner::open(context);   // reads the cache of this machine
//   tuner->attach(context);                          // from here on operations look it up
//
// A Context without an attached tuner looks up configurations as the environment variables
// SWITCHBACK_TUNE and SWITCHBACK_TUNE_* say, unless SWITCHBACK_TUNE is off or
// set_config_source(nullptr) was called. A Tuner object adds options, counters and warnings.
//
// `switchback-bench tune` fills a cache; so does Tuner::tune(). A configuration changes speed,
// never a code or an int32 sum.
//
// Modes record and tune, and Tuner::tune(), write to files under a lock that other processes may
// hold. They wait for it at most one second in total. After that they warn, keep the unwritten
// entries in memory, and try again, without waiting, together with the next entry.
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

/// What to do with the problems that a Context meets.
enum class TuneMode : std::int32_t {
  off = 0,   ///< nothing is looked up
  read = 1,  ///< looked up; an unknown problem runs with the default configuration
  /// As read, and unknown problems are written to a file that `switchback-bench tune --recorded`
  /// reads; the first 65536 distinct ones.
  record = 2,
  /// Unknown problems are measured when they are first met (never while a stream is captured); the
  /// first 16384 of them.
  tune = 3,
  require = 4  ///< an unknown problem is an error
};
/// "off", "read", "record", "tune", "require"; "unknown" for any other value.
SWITCHBACK_API std::string_view tune_mode_name(TuneMode mode) noexcept;
/// The inverse of tune_mode_name. Throws Error(invalid_argument) that lists the names.
SWITCHBACK_API TuneMode parse_tune_mode(std::string_view name);

/// Where a Tuner finds and keeps configurations, and what it does about unknown problems.
struct TunerOptions {
  /// The name of a TuneMode; empty: $SWITCHBACK_TUNE, else "read".
  std::string mode = {};
  /// The directory of the caches; empty: $SWITCHBACK_TUNE_CACHE, else $XDG_CACHE_HOME/switchback,
  /// else $HOME/.cache/switchback. A directory that does not exist counts as an empty cache.
  std::string cache_directory = {};
  /// A read-only list for problems that the cache lacks: a file, or a directory of .jsonl files.
  /// Empty: $SWITCHBACK_TUNE_SYSTEM (a warning if it is not there), else the list installed with
  /// the library (share/switchback/configs next to its lib folder).
  std::string system_directory = {};
  /// Mode record: the file; empty: $SWITCHBACK_TUNE_RECORD, else recorded.jsonl in the cache.
  std::string record_file = {};
  /// Whether an unknown problem takes the configuration of a measured one with another number of
  /// rows M in the same bucket. Above 16, buckets end at powers of two and at 3/2 times them.
  bool near_shapes = false;
  /// Whether to reject an entry that was measured with another driver, product name or version of
  /// this library.
  bool strict = false;
  /// The program that first runs configurations that may fail on a machine on which they never
  /// ran; see validate.hpp. Empty: $SWITCHBACK_VALIDATE, else the `switchback-validate`
  /// installed with the library. If there is none, these configurations are left out, with a
  /// warning.
  std::string validator = {};
  /// Mode tune: seconds per problem. What the program above needs to validate configurations is not
  /// counted.
  double budget_per_key_s = 0.5;
  /// Whether tune() and mode tune watch for other programs. A measurement that these disturb too
  /// much is in doubt: it is stored as such and not used, and the default runs until the problem is
  /// measured again.
  bool notice_others = true;
  /// Called once for each warning: an entry that cannot be used, a line that cannot be read, a
  /// cache that cannot be written. May be called from any thread that uses the Context.
  std::function<void(const std::string&)> warn;
};

/// Where a configuration came from.
enum class TuneOrigin : std::int32_t {
  fallback = 0,     ///< no entry: the default configuration
  exact = 1,        ///< the cache
  near_shape = 2,   ///< an entry of the cache for another number of rows
  system_list = 3,  ///< the list installed with the library
  /// No entry; the default follows from what measurements of other problems, or validations, have
  /// shown of kernels on this kind of machine.
  validated = 4
};
/// "default", "cache", "near shape", "system list", "proven default"; "unknown" for any other
/// value.
SWITCHBACK_API std::string_view tune_origin_name(TuneOrigin origin) noexcept;

/// Look-ups so far.
struct TunerCounters {
  std::int64_t hits = 0;     ///< an entry was found and used
  std::int64_t misses = 0;   ///< none was
  std::int64_t refused = 0;  ///< of the misses: there is an entry, but it cannot be used here
  /// Bytes used to remember look-ups. However many distinct problems there were, this stays below
  /// 2 MB plus 380 bytes for each problem in the cache and the system list. (Mode tune also keeps
  /// the entry, some 1 KB, of each problem that it measures.)
  std::int64_t memory_bytes = 0;
};

/// A layer to tune, at one number of rows.
struct TuneShape {
  std::int64_t rows = 0;          ///< M, tokens
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  DType dtype = DType::f32;       ///< of x, weight and g
  bool bias = false;              ///< the layer has a bias, in its dtype
  /// Above zero: the layer has this many groups, and `rows` are those of all groups.
  std::int64_t groups = 0;
};

/// How long Tuner::tune() may measure.
struct TuneLimits {
  double budget_s = 0;  ///< seconds for everything, warm-up and checks included; 0: no limit
  double budget_per_key_s = 0;  ///< seconds per problem; 0: its share of budget_s, or no limit
  int max_candidates = 0;       ///< besides the default; 0: all
  bool force = false;           ///< re-measure problems already measured with the same effort
};

/// What Tuner::tune() has done so far.
struct TuneSummary {
  std::int64_t keys = 0;      ///< problems of these shapes
  std::int64_t known = 0;     ///< not measured: already in the cache
  std::int64_t tuned = 0;     ///< measured
  std::int64_t in_doubt = 0;  ///< of those measured: not used, since other programs disturbed them
  /// Of those measured, and not in doubt: a configuration other than the default won.
  std::int64_t changed = 0;
  std::int64_t cut = 0;     ///< left at the default: out of time, or could not run
  std::int64_t failed = 0;  ///< candidates that gave wrong results or could not run
  std::int64_t lost = 0;    ///< measured, but known to this process alone: warnings say why
};

struct TunerState;  // autotune/tuner_state.hpp

/// The tuner of one machine and one kind of device. Shared by any number of Contexts and threads.
class SWITCHBACK_API Tuner {
 public:
  /// Reads the cache of this Context's device once. Throws Error(invalid_argument) for invalid
  /// options; a file that cannot be read is only a warning.
  static std::shared_ptr<Tuner> open(const Context& context, const TunerOptions& options = {});
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Makes the operations of a Context look up this tuner. The Context must be of the same kind of
  /// device; it keeps alive what it needs of the tuner. In mode off nothing is looked up.
  void attach(Context& context) const;

  /// As the options or SWITCHBACK_TUNE say.
  [[nodiscard]] TuneMode mode() const noexcept;
  /// The file that holds this machine's entries; empty without a cache directory.
  [[nodiscard]] std::string cache_file() const;
  /// Look-ups of all Contexts to which this tuner is attached.
  [[nodiscard]] TunerCounters counters() const noexcept;
  /// All warnings so far, whether `warn` was set or not.
  [[nodiscard]] std::vector<std::string> warnings() const;

  /// Measures the problems that layers of these shapes run on this Context when they quantize, and
  /// the mode of each pass. On a CPU also the products of layers in floating point; on a GPU these
  /// keep the algorithm that the library ranks first. Results are added to the cache one problem at
  /// a time, so an interrupted run keeps what it has measured. If the cache cannot be written, that
  /// is a warning, and the results last as long as this Tuner. `progress` is called after each
  /// problem; returning false stops the tuning.
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
