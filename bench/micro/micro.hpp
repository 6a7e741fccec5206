// SPDX-License-Identifier: Apache-2.0
// Bench: `micro`: measures the product's performance claims, each against its baseline in the same
// rounds of the same process. Each bench is a workload (workload/workload.hpp) in its own file. The
// benches share a subcommand and its options.
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

/// The options that all benches share.
struct MicroOptions {
  std::vector<MicroShape> shapes;  ///< of products, layers and MLPs; empty: the default shapes
  std::optional<DType> dtype;      ///< of layers and quantize; empty: f32, or all types
  std::vector<std::string> only;   ///< parts of names of operations, see takes()
  double min_time_s = 0;           ///< of each group of rivals; 0: as long as the claim needs
  double time_factor = 1;          ///< for the default min_time_s
  std::uint64_t seed = 1;
  /// Calls do not find their operands in a cache. On the CPU, calls rotate among copies of the
  /// operands, so that this many bytes are used between two uses of a copy (measure::Turns). On a
  /// device, its L2 cache is emptied before each call.
  bool cold = false;
  double cold_bytes = 0;
  measure::DisturbanceWatch* watch = nullptr;  ///< see RoundOptions

  /// Whether an operation of models or quantize is to be measured.
  [[nodiscard]] bool takes(std::string_view operation) const {
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& part) {
             return operation.find(part) != std::string_view::npos;
           });
  }
};

/// M/K/N of the published tables.
const std::vector<MicroShape>& default_micro_shapes();

/// Rounds of a group of rivals on the Context's device. `default_s` is the time that the claim
/// needs.
measure::RoundOptions micro_rounds(const Context& context, const MicroOptions& options,
                                   double default_s, int warmup = 1);

/// The rivals in such rounds, with the operands that `turns` rotates.
std::vector<measure::Timed> micro_race(const Context& context, const MicroOptions& options,
                                       measure::Turns& turns,
                                       const std::vector<measure::Rival>& rivals, double default_s,
                                       int warmup = 1);

class MicroBench : public Workload {
 public:
  explicit MicroBench(const MicroOptions& shared) : shared_(shared) {}

  /// Adds only the options of this bench; `micro` has the others.
  void add_options(CLI::App& /*command*/, SessionOptions& /*shared*/) override {}
  /// The text above the table.
  [[nodiscard]] virtual std::string_view explanation() const { return {}; }
  /// Whether the bench is left out by default, because it makes no claim about a machine.
  [[nodiscard]] virtual bool only_if_named() const { return false; }
  /// Whether `--only` selects among its operations. If `--only` is given and no bench is named, the
  /// other benches are left out.
  [[nodiscard]] virtual bool has_operations() const { return false; }
  /// Why the bench is not measured on this device; empty if it is.
  [[nodiscard]] virtual std::string refuses(const Context& /*context*/) const { return {}; }
  [[nodiscard]] virtual Table table() const = 0;
  /// The leading columns of the table, which are repeated if the table is too wide and is split.
  [[nodiscard]] virtual std::size_t key_columns() const { return 1; }

 protected:
  [[nodiscard]] const MicroOptions& shared() const noexcept { return shared_; }
  /// One case for each shape: the requested shapes, or the bench's own.
  [[nodiscard]] std::vector<CasePlan> plan_shapes(std::vector<MicroShape> otherwise);
  /// The shared options, with only the shape of one case.
  [[nodiscard]] MicroOptions of_case(std::size_t i) const;

 private:
  const MicroOptions& shared_;
  std::vector<MicroShape> shapes_;
};

/// All benches, in the order in which they run.
std::vector<std::unique_ptr<MicroBench>> make_micro_benches(const MicroOptions& shared);

}  // namespace switchback::bench
