// SPDX-License-Identifier: Apache-2.0
// Entry zone: the tuner, which measures the fastest engine and configuration for each problem (an
// operation with its shape and types). It keeps the results in files that many processes and
// machines can share, and gives them to the operations of a Context.
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

/// What a tuner does for the problems that a Context runs. A problem is an operation with its shape
/// and types; it is unknown if no tuned configuration was found for it.
enum class TuneMode : std::int32_t {
  off = 0,   ///< no configuration is looked up
  read = 1,  ///< looks problems up; an unknown one runs with the default configuration
  /// As `read`; also writes the first 8192 unknown problems to a file that `switchback-bench tune
  /// --recorded` reads.
  record = 2,
  /// As `read`; also measures the first 16384 unknown problems, each when it first runs (but never
  /// while a stream is captured).
  tune = 3,
  require = 4  ///< an unknown problem is an error
};
/// The name of a mode: "off", "read", "record", "tune", "require"; "unknown" for any other value.
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
  /// A read-only list of configurations for problems that the cache lacks: a file, or a directory
  /// of .jsonl files. Empty: $SWITCHBACK_TUNE_SYSTEM (a warning if it is not there), else the list
  /// installed with the library (share/switchback/configs next to its lib folder).
  std::string system_directory = {};
  /// The file that mode record writes; empty: $SWITCHBACK_TUNE_RECORD, else recorded.jsonl in the
  /// cache directory.
  std::string record_file = {};
  /// Whether an unknown problem takes the configuration of a measured problem that differs only in
  /// its number of rows M, if both are in the same bucket. Each M up to 16 is a separate bucket;
  /// above 16, buckets end at powers of two and at 3/2 times them.
  bool near_shapes = false;
  /// Whether to reject an entry that was measured with another driver, product name or version of
  /// this library.
  bool strict = false;
  /// The helper program that first runs configurations that may crash on a machine on which they
  /// never ran; see validate.hpp. Empty: $SWITCHBACK_VALIDATE, else the `switchback-validate`
  /// installed with the library. If there is no such program, these configurations are left out,
  /// with a warning.
  std::string validator = {};
  /// How many seconds mode tune may measure one problem. The time that `validator` needs is not
  /// counted.
  double budget_per_key_s = 0.5;
  /// Whether tune() and mode tune detect the activity of other programs. A measurement that they
  /// disturb too much is in doubt: it is stored as such and not used, and the default configuration
  /// runs until the problem is measured again.
  bool notice_others = true;
  /// Called once for each warning: an entry that cannot be used, a line that cannot be read, a
  /// cache that cannot be written. May be called from any thread that uses the Context.
  std::function<void(const std::string&)> warn;
};

/// Where the configuration of a problem came from.
enum class TuneOrigin : std::int32_t {
  fallback = 0,     ///< no entry was found: the default configuration
  exact = 1,        ///< an entry of the cache for this problem
  near_shape = 2,   ///< an entry of the cache for another number of rows M
  system_list = 3,  ///< the list installed with the library
  /// No entry was found: a default configuration, chosen by what validations and measurements of
  /// other problems have shown about the kernels on this kind of machine.
  validated = 4
};
/// The name of an origin: "default", "cache", "near shape", "system list", "proven default";
/// "unknown" for any other value.
SWITCHBACK_API std::string_view tune_origin_name(TuneOrigin origin) noexcept;

/// Counts of the look-ups of a tuner so far.
struct TunerCounters {
  std::int64_t hits = 0;     ///< look-ups that found an entry and used it
  std::int64_t misses = 0;   ///< look-ups that found no entry to use
  std::int64_t refused = 0;  ///< misses that found an entry which cannot be used here
  /// Bytes used to remember look-ups. However many distinct problems there were, this stays below
  /// 2 MB plus 380 bytes for each problem in the cache and the system list. (Mode tune also keeps
  /// the entry, some 1 KB, of each problem that it measures.)
  std::int64_t memory_bytes = 0;
};

/// The shape of a layer to tune, for one number of rows.
struct TuneShape {
  std::int64_t rows = 0;          ///< M, the number of tokens
  std::int64_t in_features = 0;   ///< K
  std::int64_t out_features = 0;  ///< N
  DType dtype = DType::f32;       ///< type of x, weight and g
  bool bias = false;              ///< whether the layer has a bias, in its dtype
  /// Above zero: the number of groups of the layer; `rows` then counts the rows of all groups.
  std::int64_t groups = 0;
};

/// How long Tuner::tune() may measure.
struct TuneLimits {
  double budget_s = 0;  ///< seconds for everything, warm-up and checks included; 0: no limit
  double budget_per_key_s = 0;  ///< seconds per problem; 0: its share of budget_s, or no limit
  int max_candidates = 0;       ///< most configurations to try, not counting the default; 0: all
  bool force = false;           ///< measure problems again that the cache already has
};

/// What Tuner::tune() has done so far.
struct TuneSummary {
  std::int64_t keys = 0;   ///< problems that layers of the given shapes run
  std::int64_t known = 0;  ///< problems not measured, because the cache has them or they are empty
  std::int64_t tuned = 0;  ///< problems measured
  /// Measured problems whose results are not used, because other programs disturbed them.
  std::int64_t in_doubt = 0;
  /// Measured problems, not in doubt, for which a configuration other than the default won.
  std::int64_t changed = 0;
  std::int64_t cut = 0;  ///< problems left at the default: no time, or they could not run
  /// Configurations that gave wrong results or could not run, and problems that could not run.
  std::int64_t failed = 0;
  /// Measured problems whose results only this process has; warnings say why.
  std::int64_t lost = 0;
};

struct TunerState;  // defined in autotune/tuner_state.hpp

/// The tuner of one machine and one kind of device. Shared by any number of Contexts and threads.
class SWITCHBACK_API Tuner {
 public:
  /// Reads the cache of this Context's device once. Throws Error(invalid_argument) for invalid
  /// options; a file that cannot be read is only a warning.
  static std::shared_ptr<Tuner> open(const Context& context, const TunerOptions& options = {});
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Makes the operations of a Context look up their configurations in this tuner. The Context must
  /// be of the same kind of machine and device; it keeps alive what it needs of the tuner. In mode
  /// off nothing is looked up.
  void attach(Context& context) const;

  /// The tuner's mode, from the options or from $SWITCHBACK_TUNE.
  [[nodiscard]] TuneMode mode() const noexcept;
  /// The file that holds this machine's entries; empty without a cache directory.
  [[nodiscard]] std::string cache_file() const;
  /// Counts of the look-ups of all Contexts to which this tuner is attached.
  [[nodiscard]] TunerCounters counters() const noexcept;
  /// All warnings so far, whether `warn` was set or not.
  [[nodiscard]] std::vector<std::string> warnings() const;

  /// Measures the problems that layers of these shapes run on this Context in the int8 modes, and
  /// which mode is the fastest for each pass. On a CPU it also measures the products of layers in
  /// floating point; on a GPU these keep the algorithm that cuBLASLt ranks first. Results are added
  /// to the cache one problem at a time, so an interrupted run keeps what it has measured. If the
  /// cache cannot be written, that is a warning, and the results last as long as this Tuner.
  /// `progress` is called after each problem; returning false stops the tuning.
  TuneSummary tune(Context& context, const std::vector<TuneShape>& shapes,
                   const TuneLimits& limits = {},
                   const std::function<bool(const TuneSummary&)>& progress = {});

  /// The internal state, for the library itself. Not part of the API.
  [[nodiscard]] TunerState& state() const noexcept { return *state_; }

 private:
  explicit Tuner(std::shared_ptr<TunerState> state) noexcept;
  std::shared_ptr<TunerState> state_;
};

}  // namespace switchback
