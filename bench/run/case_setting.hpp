// SPDX-License-Identifier: Apache-2.0
// Bench: what the parts of measuring a case share: its operands, the calls to time, and the steps
// from the operands to the calls.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run/case.hpp"
#include "bench/run/operands.hpp"
#include "measure/statistics.hpp"
#include "switchback/linear.hpp"

namespace switchback::bench {

/// A call that each round times once, and where the summary of its times is stored.
struct Entry {
  enum class Sweep { fields, defaults, standard_layers, auto_layers };
  Sweep sweep;
  std::function<void()> call;
  measure::Stats* stats;
  /// Where to store the time of each round; null: nowhere.
  std::vector<double>* times_ms = nullptr;
};
/// Two timed calls that are compared round by round. The result is how many times faster the
/// subject is than the rival.
struct Duel {
  std::size_t subject, rival;  ///< indices of two calls in CaseSetting::entries
  measure::Middle* speedup;
};

/// A layer with the W that it reads. With cold caches a layer has copies, each with its own W.
struct LayerOfCase {
  measure::Matrix own_w;
  std::unique_ptr<SwitchbackLinear> layer;
};

struct CaseSetting {
  CaseSetting(Context& context, const Case& c, const CaseOptions& options);

  Context& context;
  const Case shape;
  const CaseOptions& options;
  Operands operands;
  measure::Turns turns;
  OperandTurns copies;
  /// The layers that the timed calls refer to.
  std::deque<measure::TakenInTurns<LayerOfCase>> layers;
  std::vector<Entry> entries;
  std::vector<Duel> duels;

  /// take() returns the copy of an operand for the next call; matrix() returns the copy that take()
  /// returned last.
  const measure::Matrix& take(Operand operand) { return copies.take(operand); }
  [[nodiscard]] const measure::Matrix& matrix(Operand operand) const {
    return copies.last(operand);
  }
  /// Adds a layer that reads the case's W, prepared for eval if `eval`. `bytes` is the memory that
  /// the layer itself holds.
  measure::TakenInTurns<LayerOfCase>& add_layer(const LinearOptions& made_with, bool eval,
                                                double bytes);
  /// The last used copy of an operand, copied to the host's memory.
  [[nodiscard]] measure::Matrix on_host(Operand operand) {
    return measure::to_host(context, matrix(operand));
  }
  /// The CPU Context in which results are checked.
  [[nodiscard]] Context& host() { return cpu_ ? *cpu_ : context; }
  /// Throws Interrupted if the user asked to stop.
  void stop_if_interrupted() const;
  /// Adds a call to the rounds. Returns its index in `entries`.
  std::size_t add(Entry::Sweep sweep, std::function<void()> call, measure::Stats& stats,
                  std::vector<double>* times_ms = nullptr);

 private:
  /// The Context of the CPU, if the measured one is of another device.
  std::optional<Context> cpu_;
};

/// Quantizes the operands whose codes the chosen int8 products read, and packs the weights.
void make_codes(CaseSetting& setting);
/// Runs a field's work once into outputs that were filled with poison values, checks the results,
/// and adds the field to the rounds if it is correct.
void prepare_field(CaseSetting& setting, Field field, CaseResult& result);
/// Adds layers in mode auto and in mode standard, on the case's operands, to the rounds.
void prepare_layers(CaseSetting& setting, CaseResult& result);
/// Times all entries (calls) in rounds, and summarises the times of each.
void run_case_rounds(CaseSetting& setting, CaseResult& result);

/// A call of the floating point product with this engine; empty: the library's choice.
std::function<void()> floating_call(CaseSetting& setting, const FloatingProduct& product,
                                    const std::string& engine);
/// Finds the fastest engine for the floating point product among all that accept it, because a slow
/// baseline would flatter the int8 path. Throws Error(unsupported) if none accepts it.
std::string fastest_floating_engine(CaseSetting& setting, const FloatingProduct& product);

}  // namespace switchback::bench
