// SPDX-License-Identifier: Apache-2.0
// Bench: shared by the parts of measuring a case: its operands, the timed calls, and the steps from
// one to the other.
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

/// One call of the rounds, and where the summary of its times is stored.
struct Entry {
  enum class Sweep { fields, defaults, standard_layers, auto_layers };
  Sweep sweep;
  std::function<void()> call;
  measure::Stats* stats;
  std::vector<double>* times_ms = nullptr;  ///< where the times go; null: nowhere
};
/// Two entries whose times are compared round by round. The result is how many times faster the
/// subject is than the rival.
struct Duel {
  std::size_t subject, rival;  ///< indices in CaseSetting::entries
  measure::Middle* speedup;
};

/// A layer with the W that it reads; copies of the layer have their own W.
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
  /// Layers that calls refer to.
  std::deque<measure::TakenInTurns<LayerOfCase>> layers;
  std::vector<Entry> entries;
  std::vector<Duel> duels;

  /// The copy of an operand for a call, and the one that a call used last.
  const measure::Matrix& take(Operand operand) { return copies.take(operand); }
  [[nodiscard]] const measure::Matrix& matrix(Operand operand) const {
    return copies.last(operand);
  }
  /// Adds a layer over W, prepared for eval if `eval`. `bytes` is the memory that the layer itself
  /// holds.
  measure::TakenInTurns<LayerOfCase>& add_layer(const LinearOptions& made_with, bool eval,
                                                double bytes);
  /// An operand copied to the host.
  [[nodiscard]] measure::Matrix on_host(Operand operand) {
    return measure::to_host(context, matrix(operand));
  }
  /// The Context that checks results.
  [[nodiscard]] Context& host() { return cpu_ ? *cpu_ : context; }
  /// Throws Interrupted if the user asked to stop.
  void stop_if_interrupted() const;
  /// Returns the entry's index.
  std::size_t add(Entry::Sweep sweep, std::function<void()> call, measure::Stats& stats,
                  std::vector<double>* times_ms = nullptr);

 private:
  std::optional<Context> cpu_;  ///< if the Context is of another device
};

/// Makes the codes that the chosen int8 products read, and packs the weights.
void make_codes(CaseSetting& setting);
/// Runs a field once into poisoned outputs, checks it, and adds it to the rounds if it is correct.
void prepare_field(CaseSetting& setting, Field field, CaseResult& result);
/// Adds whole layers over the case's operands, in mode auto and in mode standard.
void prepare_layers(CaseSetting& setting, CaseResult& result);
/// Times all entries in rounds and summarises them.
void run_case_rounds(CaseSetting& setting, CaseResult& result);

/// A call of the product with this engine; empty: the library's choice.
std::function<void()> floating_call(CaseSetting& setting, const FloatingProduct& product,
                                    const std::string& engine);
/// The fastest engine for the product among all that accept it, because a slow baseline would
/// flatter the int8 path. Throws Error(unsupported) if none accepts it.
std::string fastest_floating_engine(CaseSetting& setting, const FloatingProduct& product);

}  // namespace switchback::bench
