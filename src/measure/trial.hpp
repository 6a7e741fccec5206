// SPDX-License-Identifier: Apache-2.0
// Measure: a trial is one problem with its operands, on which configurations are checked and timed.
// Each operation has one, in the file trial.cpp of its folder. The tuner's search, the validation
// in another process, `verify` and `micro` know nothing else about an operation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config_source.hpp"
#include "core/device_kind.hpp"
#include "measure/compare.hpp"
#include "measure/data_kinds.hpp"
#include "measure/matrix.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

/// One result of a run, compared with what it must be.
struct Finding {
  std::string_view op;  ///< the public function: "quantize_rowwise"
  std::string part;     ///< which result: "codes"
  DType output = DType::f32;
  Comparison comparison;
  std::string rule;  ///< what the result must be
};
using Findings = std::vector<Finding>;
/// The first one that is wrong, in words; empty: none is.
std::string fault_of(const Findings& findings);

/// The sizes of a layer: X[m,k], W[n,k].
struct TrialShape {
  std::int64_t m = 0, n = 0, k = 0;
};

struct TrialOptions {
  Data data = Data::normal;
  std::uint64_t seed = 1;
  /// The most products (of a product) or elements (of a matrix) that a reference computes. Of a
  /// larger problem a part is compared with the reference, and all with the result of the first
  /// configuration.
  double most_reference_work = 0x1p23;
  /// Calls that are timed take turns with copies of the operands, so that they find the caches as a
  /// program leaves them.
  bool takes_turns = false;
  /// Tests change here what an operation has written, to see that the check fails.
  std::function<void(const Finding&, AnyMatrix written)> tamper = {};
};

class Trial {
 public:
  virtual ~Trial() = default;

  /// Every configuration worth trying; the first is the default.
  [[nodiscard]] virtual std::vector<ConfigChoice> candidates() = 0;
  /// The same and every other one that there is, for a thorough search.
  [[nodiscard]] virtual std::vector<ConfigChoice> all_candidates() { return candidates(); }

  /// Runs a configuration and compares its results with the reference; those of a problem that is
  /// too large for it also with the results of the first configuration that was checked. Integers
  /// and codes are compared exactly. Throws Error if the configuration cannot run.
  [[nodiscard]] virtual Findings findings(const ConfigChoice& choice) = 0;
  /// The same, and what is wrong in words; empty: nothing is.
  [[nodiscard]] std::string check(const ConfigChoice& choice) { return fault_of(findings(choice)); }

  /// The default configuration of each engine that can run the problem, also of one that may crash
  /// the process; the first is the default.
  [[nodiscard]] virtual std::vector<ConfigChoice> engines() { return {candidates().front()}; }

  /// Runs a configuration that passed, as an ordinary call would. This is what is timed.
  virtual void run(const ConfigChoice& choice) = 0;

  /// Scratch memory of a configuration: of two equally fast ones the one with less wins.
  [[nodiscard]] virtual std::int64_t scratch_bytes(const ConfigChoice&) { return 0; }

  /// By how much a candidate must be faster than the default to replace it. On newly allocated
  /// operands the same configuration is up to 3 to 4 % faster or slower, depending on its pages, so
  /// a smaller difference says nothing. (Ten tunes of 26 problems agreed on 93 % of winners at 2
  /// %.)
  [[nodiscard]] virtual double least_gain() const { return 0.04; }

  /// Whether a configuration may crash the process, such as one whose kernel never ran on this kind
  /// of machine.
  [[nodiscard]] virtual bool is_risky(const ConfigChoice&) { return false; }

  /// A library's own form of a configuration, to be stored with it; usually empty.
  [[nodiscard]] virtual std::string provenance(const ConfigChoice&) { return {}; }
};

/// How many rows of a result are compared with those of the first configuration; at least 64, if it
/// has that many. On a device as many as the host fetches within a few milliseconds.
std::int64_t rows_to_keep(DeviceKind device, std::int64_t rows, std::int64_t cols) noexcept;
/// At most `most` rows of m, equally far from each other up to the last one; all if there are no
/// more. Their distance is odd, so that they are at all places of a kernel's tiles.
AnyMatrix spread_rows(AnyMatrix m, std::int64_t most) noexcept;

/// Copies of the operands of a product elsewhere in memory, with which timed calls take turns.
class ProductCopies {
 public:
  struct Set {
    Matrix a, b, d;
  };
  ProductCopies() = default;
  ProductCopies(Context& context, const TrialOptions& options, const Matrix& a, const Matrix& b,
                const Matrix& d);
  /// Null: the turn of the operands themselves.
  const Set* next() noexcept;

 private:
  std::vector<Set> sets_;
  std::size_t next_ = 0;
};

/// Collects the findings of one check.
class Checker {
 public:
  Checker(Context& context, const TrialOptions& options) : context_(context), options_(options) {}

  /// The sampled elements of a result in memory of the Context's device have the bits of `want`,
  /// which is on the host.
  void exact(std::string_view op, std::string part, AnyMatrix written, const Sample& sample,
             ConstAnyMatrix want, std::string_view rule);
  /// All elements.
  void exact(std::string_view op, std::string part, AnyMatrix written, ConstAnyMatrix want,
             std::string_view rule);
  /// The sampled elements are within their bounds, and their accuracy is measured.
  void bounded(std::string_view op, std::string part, AnyMatrix written, const Sample& sample,
               const Reference& reference, std::string rule);
  /// Rows from all over a result are those of the first configuration that passed until here, which
  /// are kept in `kept`. Does nothing if something was wrong.
  void like_the_first(std::string_view op, std::string part, AnyMatrix written,
                      std::int64_t most_rows, Matrix& kept);
  /// What compared so many elements in another way has found `fault`; empty: nothing.
  void add(std::string_view op, std::string part, DType output, std::int64_t compared,
           std::string_view rule, const std::string& fault);

  [[nodiscard]] bool passes() const noexcept;
  [[nodiscard]] Findings take() { return std::move(found_); }

 private:
  // Compares the sample, which `compare` takes as a matrix of the host.
  void compare_sample(Finding finding, AnyMatrix written, const Sample& sample,
                      const std::function<Comparison(AnyMatrix)>& compare);

  Context& context_;
  const TrialOptions& options_;
  Findings found_;
};

/// A trial of an operation with its own Config, which has to_choice(), from_choice() and == of it.
template <class Config>
class TrialOf : public Trial {
 public:
  std::vector<ConfigChoice> candidates() final { return choices_of(configs()); }
  std::vector<ConfigChoice> all_candidates() final { return choices_of(all_configs()); }
  std::vector<ConfigChoice> engines() final { return choices_of(engine_configs()); }

  Findings findings(const ConfigChoice& choice) final {
    Checker checker(context_, options_);
    Config config;
    const std::string refused =
        from_choice(choice, config) ? refusal(config) : "the numbers are no configuration";
    if (refused.empty())
      compare(checker, config);
    else
      checker.add(op_, "configuration", output_, 0, {}, refused);
    return checker.take();
  }
  void run(const ConfigChoice& choice) final {
    if (Config config; from_choice(choice, config)) run_config(config);
  }
  std::int64_t scratch_bytes(const ConfigChoice& choice) final {
    Config config;
    return from_choice(choice, config) ? scratch_of(config) : 0;
  }
  bool is_risky(const ConfigChoice& choice) final {
    Config config;
    return from_choice(choice, config) && may_crash(config);
  }
  std::string provenance(const ConfigChoice& choice) final {
    Config config;
    return from_choice(choice, config) ? provenance_of(config) : std::string();
  }

 protected:
  /// The public function, and the type of its result.
  TrialOf(Context& context, const TrialOptions& options, std::string_view op, DType output)
      : context_(context), options_(options), op_(op), output_(output) {}

  // What the functions above ask, of a Config.
  [[nodiscard]] virtual std::vector<Config> configs() = 0;
  [[nodiscard]] virtual std::vector<Config> all_configs() { return configs(); }
  /// The default, then that of each engine, which may be the same.
  [[nodiscard]] virtual std::vector<Config> engine_configs() = 0;
  /// Why it cannot run, for an operation whose run_config() does not throw that.
  [[nodiscard]] virtual std::string refusal(const Config&) { return {}; }
  virtual void compare(Checker& checker, const Config& config) = 0;
  virtual void run_config(const Config& config) = 0;
  [[nodiscard]] virtual std::int64_t scratch_of(const Config&) { return 0; }
  [[nodiscard]] virtual bool may_crash(const Config&) { return false; }
  [[nodiscard]] virtual std::string provenance_of(const Config&) { return {}; }

  /// Without those for tests, which take part only where nothing else does.
  template <class IsOracle>
  static std::vector<Config> without_oracles(std::vector<Config> all, const IsOracle& is_oracle) {
    all.erase(std::remove_if(all.begin() + 1, all.end(), is_oracle), all.end());
    return all;
  }

  Context& context_;
  const TrialOptions options_;
  const std::string_view op_;
  const DType output_;

 private:
  static std::vector<ConfigChoice> choices_of(const std::vector<Config>& configs) {
    std::vector<ConfigChoice> choices;
    for (const Config& config : configs)
      if (std::find(choices.begin(), choices.end(), to_choice(config)) == choices.end())
        choices.push_back(to_choice(config));
    return choices;
  }
};

}  // namespace switchback::measure
