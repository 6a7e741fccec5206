// SPDX-License-Identifier: Apache-2.0
// Bench: what the parts of measuring a case share: its operands, what is timed of it, and the steps
// from one to the other.
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

/// One call of the rounds, and where the summary of its times goes.
struct Entry {
  enum class Sweep { fields, defaults, standard_layers, auto_layers };
  Sweep sweep;
  std::function<void()> call;
  measure::Stats* stats;
  std::vector<double>* times_ms = nullptr;  ///< and where they go themselves, if anywhere
};
/// Two entries whose times are compared round by round: how many times faster the subject is.
struct Duel {
  std::size_t subject, rival;  ///< places in CaseSetting::entries
  measure::Middle* speedup;
};

/// A layer with the W that it reads; copies of it have their own.
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

  /// The copy of an operand for a call, and the one that a call took last.
  const measure::Matrix& take(Operand operand) { return copies.take(operand); }
  [[nodiscard]] const measure::Matrix& matrix(Operand operand) const {
    return copies.last(operand);
  }
  /// A layer over W, which holds so many bytes of its own; prepared for eval or not.
  measure::TakenInTurns<LayerOfCase>& add_layer(const LinearOptions& made_with, bool eval,
                                                double bytes);
  /// An operand as the host reads it.
  [[nodiscard]] measure::Matrix on_host(Operand operand) {
    return measure::to_host(context, matrix(operand));
  }
  /// Where results are checked.
  [[nodiscard]] Context& host() { return cpu_ ? *cpu_ : context; }
  /// Throws Interrupted if the user asked to stop.
  void stop_if_interrupted() const;
  /// Returns the entry's place.
  std::size_t add(Entry::Sweep sweep, std::function<void()> call, measure::Stats& stats,
                  std::vector<double>* times_ms = nullptr);

 private:
  std::optional<Context> cpu_;  ///< beside another device
};

/// Makes the codes that the chosen int8 products read, and packs the weights.
void make_codes(CaseSetting& setting);
/// Runs a field once into poisoned outputs, checks it, and enters it for the rounds if it is right.
void prepare_field(CaseSetting& setting, Field field, CaseResult& result);
/// Enters whole layers over the case's operands, in mode auto and in mode standard.
void prepare_layers(CaseSetting& setting, CaseResult& result);
/// Times all entries in turns and summarises them.
void run_case_rounds(CaseSetting& setting, CaseResult& result);

/// A call of the product in this engine; empty: the library's choice.
std::function<void()> floating_call(CaseSetting& setting, const FloatingProduct& product,
                                    const std::string& engine);
/// The fastest engine for the product among all that accept it: a slow rival would flatter the int8
/// path. Throws Error(unsupported) if none does.
std::string fastest_floating_engine(CaseSetting& setting, const FloatingProduct& product);

}  // namespace switchback::bench
