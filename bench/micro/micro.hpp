// SPDX-License-Identifier: Apache-2.0
// Bench: `micro`: measures the speed that this library claims, each claim against its baseline in
// the same rounds of the same process. Each bench is a workload (workload/workload.hpp) in its own
// file. The benches share a subcommand and its options.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/verify/verify.hpp"
#include "bench/workload/workload.hpp"
#include "measure/caches.hpp"
#include "measure/rounds.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

using MicroShape = VerifyShape;

/// The options that all benches of `micro` share.
struct MicroOptions {
  /// The shapes of products, layers and MLPs; empty: the default shapes.
  std::vector<MicroShape> shapes;
  /// The type of layers and of quantize; empty: f32 for layers, all types for quantize.
  std::optional<DType> dtype;
  /// Selects operations by parts of their names, see takes(); empty: all.
  std::vector<std::string> only;
  /// Seconds to time each group of rivals; 0: as long as the bench's claim needs.
  double min_time_s = 0;
  double time_factor = 1;  ///< multiplies the time that a claim needs, if min_time_s is 0
  std::uint64_t seed = 1;
  /// `cold`: calls do not find their operands in a cache. On the CPU, calls rotate among copies of
  /// the operands, so that cold_bytes bytes are used between two uses of a copy (measure::Turns).
  /// On a device, its L2 cache is emptied before each call.
  bool cold = false;
  double cold_bytes = 0;
  /// Notices rounds that other programs disturb, see RoundOptions; may be null.
  measure::DisturbanceWatch* watch = nullptr;

  /// Whether the option --only selects an operation, which the benches models and quantize ask.
  [[nodiscard]] bool takes(std::string_view operation) const {
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& part) {
             return operation.find(part) != std::string_view::npos;
           });
  }
};

/// The default shapes M, K, N of the benches, which are those of the published tables.
const std::vector<MicroShape>& default_micro_shapes();

/// The rules for timing a group of rivals in rounds on the Context's device. `default_s` is the
/// number of seconds that the bench's claim needs.
measure::RoundOptions micro_rounds(const Context& context, const MicroOptions& options,
                                   double default_s, int warmup = 1);

/// Times the rivals in rounds by the rules of micro_rounds(). `turns` has the operands, which calls
/// use alternately.
std::vector<measure::Timed> micro_race(const Context& context, const MicroOptions& options,
                                       measure::Turns& turns,
                                       const std::vector<measure::Rival>& rivals, double default_s,
                                       int warmup = 1);

class MicroBench : public Workload {
 public:
  explicit MicroBench(const MicroOptions& shared) : shared_(shared) {}

  /// Adds only the options that this bench alone has. The subcommand `micro` adds the shared ones.
  void add_options(CLI::App& /*command*/, SessionOptions& /*shared*/) override {}
  /// The text that is printed above the bench's table.
  [[nodiscard]] virtual std::string_view explanation() const { return {}; }
  /// Whether the bench runs only if the user names it, because it makes no claim about a machine.
  [[nodiscard]] virtual bool only_if_named() const { return false; }
  /// Whether `--only` selects among the operations of this bench. If `--only` is given and no bench
  /// is named, the benches without such operations are left out.
  [[nodiscard]] virtual bool has_operations() const { return false; }
  /// Why the bench is not measured on this device; empty if it is.
  [[nodiscard]] virtual std::string refuses(const Context& /*context*/) const { return {}; }
  [[nodiscard]] virtual Table table() const = 0;
  /// The number of leading columns that identify a row. They are repeated if the table is too wide
  /// for the terminal and is split.
  [[nodiscard]] virtual std::size_t key_columns() const { return 1; }

 protected:
  [[nodiscard]] const MicroOptions& shared() const noexcept { return shared_; }
  /// One case for each shape: the shapes that the user requested, or else `otherwise`.
  [[nodiscard]] std::vector<CasePlan> plan_shapes(std::vector<MicroShape> otherwise);
  /// The shared options, with the shape of case `i` as the only shape.
  [[nodiscard]] MicroOptions of_case(std::size_t i) const;

 private:
  const MicroOptions& shared_;
  std::vector<MicroShape> shapes_;
};

/// All benches of `micro`, in the order in which they run.
std::vector<std::unique_ptr<MicroBench>> make_micro_benches(const MicroOptions& shared);

}  // namespace switchback::bench
