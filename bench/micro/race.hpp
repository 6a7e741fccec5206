// SPDX-License-Identifier: Apache-2.0
// Bench: the races of `micro` (measure/rounds.hpp): who takes part, a subject against its rival as
// a row, and the rate of an instruction in registers as a rival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/proof/prover.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/micro/micro.hpp"
#include "bench/workload/session.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "switchback/context.hpp"
#include "switchback/engine_info.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// Rounds of a group of rivals that no deadline cuts: of fewer calls there is no spread to show.
inline constexpr int fewest_micro_rounds = 3;
/// Without those that refuse what they are called with, with Error(unsupported).
std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals);

/// Names of the available engines that are meant to be fast (not the reference).
std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos);
/// Those of the floating point products, without the ones that round the factors first: theirs is
/// another product.
std::vector<std::string> fast_floating_engines(const Context& context);

/// One subject against its rival. Ratios are of the rounds' own times: rival / subject.
struct RaceRow {
  std::string bench;
  std::string subject;  ///< an engine, or what the layer does, or an operation
  std::string rival;    ///< empty: none
  std::string variant;  ///< a layer's mode, an activation, or where a quantize's
                        ///< data lies
  DType dtype = DType::f32;
  MicroShape shape;
  measure::Stats subject_ms;
  measure::Stats rival_ms;
  measure::Middle ratio;  ///< zeros without a rival
  measure::Disturbance disturbance;

  // What some benches add.
  double gop_s = 0;                      ///< of products, 2·M·N·K each, a second, in 1e9
  double gb_s = 0;                       ///< bytes read and written a second, in 1e9
  std::optional<DType> output;           ///< what an int8 product writes
  std::string ceiling;                   ///< the instruction whose rate in registers is the ceiling
  std::optional<measure::Middle> share;  ///< of that ceiling, in the same rounds
  /// Of int8 products: the time it takes to read the bytes of W's codes once, from a buffer that
  /// was touched as long ago, over the time of the call.
  std::optional<measure::Middle> read_share;

  RaceRow() = default;
  RaceRow(std::string bench_name, std::string subject_name, const measure::Timed& subject_timed,
          const measure::Timed& rival_timed);
};
using RaceSink = std::function<void(const RaceRow&)>;

/// Of one product of this shape, two a multiply-add.
double operations_of(const MicroShape& shape) noexcept;

/// All records of such rows have the columns of every such bench; what one has not is null.
Json to_json(const RaceRow& row);

// Cells of its table.
std::string shape_text(const MicroShape& shape);
std::string time_text(const measure::Stats& stats);
std::string ratio_text(const RaceRow& row);

/// A bench whose rows are races.
class RaceBench : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::vector<Column> columns() const override;

 protected:
  /// Of the table.
  [[nodiscard]] virtual std::vector<std::string> cells(const RaceRow& row) const = 0;
  /// Takes the rows of a case to the sink, which must outlive it.
  [[nodiscard]] RaceSink rows_to(const Sink& sink) const;
};

/// A register loop of about two milliseconds on all threads: long compared with waking them.
struct Ceiling {
  RegisterLoop loop;
  long steps = 1024;
  double operations = 0;

  Ceiling(Context& context, const RegisterLoop& loop_);
};

/// (operations / time) / (ceiling's operations / its time), round by round.
measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations);

/// "82 ± 1 %"
std::string share_text(const measure::Middle& share, std::int64_t samples);

/// What was not measured, in words: configurations that were wrong, and others.
struct LeftOut {
  std::vector<std::string> wrong;
  std::vector<std::string> unproven;
};

/// Whether a configuration is right; else `left_out` says of it, by this name, why not.
bool is_right(autotune::Prover& prover, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out);

/// Warns of what the cases of a bench left out.
class LeftOutWarnings {
 public:
  /// Behind the last case it throws Error(device_error) if something of any case was wrong: so the
  /// others are measured first.
  void add(Session& session, const LeftOut& of_case, std::string_view bench, bool is_last);

 private:
  std::size_t wrong_ = 0;
};

}  // namespace switchback::bench
