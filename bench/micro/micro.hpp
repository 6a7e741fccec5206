// SPDX-License-Identifier: Apache-2.0
// Bench: `micro`: the product's claims of speed, each measured against its rival in the same rounds
// of the same process. Each bench is a workload (workload/workload.hpp) in a file of its own; they
// share a subcommand and its options.
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

/// The options that benches share.
struct MicroOptions {
  std::vector<MicroShape> shapes;  ///< of products, layers and MLPs; empty: the default ones
  std::optional<DType> dtype;      ///< of layers and quantize; nothing: f32, or all there are
  std::vector<std::string> only;   ///< parts of names of operations, see takes()
  double min_time_s = 0;           ///< of each group of rivals; 0: what the claim needs
  double time_factor = 1;          ///< on the default of that
  std::uint64_t seed = 1;
  /// Calls find none of their operands in a cache: on the CPU they take turns with copies of them,
  /// with so many bytes between two uses of one (measure::Turns); on a device its L2 cache is
  /// emptied before each call.
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

/// Rounds of a group of rivals on the Context's device, of which `default_s` is the time that a
/// claim needs.
measure::RoundOptions micro_rounds(const Context& context, const MicroOptions& options,
                                   double default_s, int warmup = 1);

/// The rivals in such rounds, with the operands that `turns` knows in turns.
std::vector<measure::Timed> micro_race(const Context& context, const MicroOptions& options,
                                       measure::Turns& turns,
                                       const std::vector<measure::Rival>& rivals, double default_s,
                                       int warmup = 1);

class MicroBench : public Workload {
 public:
  explicit MicroBench(const MicroOptions& shared) : shared_(shared) {}

  /// Only the options of this bench: `micro` has the others.
  void add_options(CLI::App& /*command*/, SessionOptions& /*shared*/) override {}
  /// What is said above the table.
  [[nodiscard]] virtual std::string_view explanation() const { return {}; }
  /// Whether it is left out where no bench is named: it makes no claim about a machine.
  [[nodiscard]] virtual bool only_if_named() const { return false; }
  /// Whether `--only` chooses among its operations. If it is given and no bench is named, others
  /// are left out.
  [[nodiscard]] virtual bool has_operations() const { return false; }
  /// Why it is not measured on this device; empty if it is.
  [[nodiscard]] virtual std::string refuses(const Context& /*context*/) const { return {}; }
  [[nodiscard]] virtual Table table() const = 0;
  /// The columns that lead the table, and are repeated where it does not fit.
  [[nodiscard]] virtual std::size_t key_columns() const { return 1; }

 protected:
  [[nodiscard]] const MicroOptions& shared() const noexcept { return shared_; }
  /// A case a shape: those asked for, or the bench's own.
  [[nodiscard]] std::vector<CasePlan> plan_shapes(std::vector<MicroShape> otherwise);
  /// The shared options, of the shape of a case alone.
  [[nodiscard]] MicroOptions of_case(std::size_t i) const;

 private:
  const MicroOptions& shared_;
  std::vector<MicroShape> shapes_;
};

/// All benches, in the order in which they run.
std::vector<std::unique_ptr<MicroBench>> make_micro_benches(const MicroOptions& shared);

}  // namespace switchback::bench
