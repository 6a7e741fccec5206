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

/// One result of a run, compared with the expected one.
struct Finding {
  std::string_view op;  ///< the public function, such as "quantize_rowwise"
  std::string part;     ///< which result of the function, such as "codes"
  DType output = DType::f32;
  Comparison comparison;
  std::string rule;  ///< what the result must be, in words
};
using Findings = std::vector<Finding>;
/// Describes the first finding that is wrong; empty if none is wrong.
std::string fault_of(const Findings& findings);

/// The sizes of a layer: X[m,k], W[n,k].
struct TrialShape {
  std::int64_t m = 0, n = 0, k = 0;
};

struct TrialOptions {
  Data data = Data::normal;
  std::uint64_t seed = 1;
  /// The most products (of a product) or elements (of a matrix) that a reference computes. If a
  /// problem is larger, a part of it is compared with the reference, and all of it with the result
  /// of the first configuration.
  double most_reference_work = 0x1p23;
  /// Whether timed calls alternate between copies of the operands, so that they find the caches in
  /// the state in which a program leaves them.
  bool takes_turns = false;
  /// Tests use this to change results before they are checked, and require that the check fails.
  std::function<void(const Finding&, AnyMatrix written)> tamper = {};
};

class Trial {
 public:
  virtual ~Trial() = default;

  /// Every configuration worth trying; the first is the default.
  [[nodiscard]] virtual std::vector<ConfigChoice> candidates() = 0;
  /// The candidates() and every other configuration that exists, for a thorough search.
  [[nodiscard]] virtual std::vector<ConfigChoice> all_candidates() { return candidates(); }

  /// Runs a configuration and compares its results with the reference. If the problem is too large
  /// for the reference, results are also compared with those of the first configuration that was
  /// checked. Integers and codes are compared exactly. Throws Error if the configuration cannot
  /// run.
  [[nodiscard]] virtual Findings findings(const ConfigChoice& choice) = 0;
  /// Like findings(), but returns a description of what is wrong, or an empty text.
  [[nodiscard]] std::string check(const ConfigChoice& choice) { return fault_of(findings(choice)); }

  /// The default configuration of each engine that can run the problem, including engines that may
  /// crash the process. The first is the default of the operation.
  [[nodiscard]] virtual std::vector<ConfigChoice> engines() { return {candidates().front()}; }

  /// Runs a configuration that passed its check, as an ordinary call would. This is what is timed.
  virtual void run(const ConfigChoice& choice) = 0;

  /// Bytes of scratch memory of a configuration. Of two equally fast ones, that with less memory
  /// wins.
  [[nodiscard]] virtual std::int64_t scratch_bytes(const ConfigChoice&) { return 0; }

  /// By how much a candidate must be faster than the default to replace it. With newly allocated
  /// operands the same configuration is up to 3 to 4 % faster or slower, depending on its pages, so
  /// a smaller difference means nothing. (Ten tunes of 26 problems agreed on 93 % of winners at 2
  /// %.)
  [[nodiscard]] virtual double least_gain() const { return 0.04; }

  /// Whether a configuration may crash the process, such as one whose kernel never ran on this kind
  /// of machine.
  [[nodiscard]] virtual bool needs_validation(const ConfigChoice&) { return false; }

  /// A library's own form of a configuration, which is stored with the configuration; usually
  /// empty.
  [[nodiscard]] virtual std::string provenance(const ConfigChoice&) { return {}; }
};

/// How many rows of a result are compared with those of the first configuration: at least 64, if
/// there are that many. On a device, the number that the host fetches within a few milliseconds.
std::int64_t rows_to_keep(DeviceKind device, std::int64_t rows, std::int64_t cols) noexcept;
/// At most `most` rows of m, equally spaced up to the last one; all rows if m has no more. Their
/// distance is odd, so that they cover all positions in a kernel's tiles.
AnyMatrix spread_rows(AnyMatrix m, std::int64_t most) noexcept;

/// Copies of the operands of a product at other addresses. Timed calls alternate between the
/// copies.
class ProductCopies {
 public:
  struct Set {
    Matrix a, b, d;
  };
  ProductCopies() = default;
  ProductCopies(Context& context, const TrialOptions& options, const Matrix& a, const Matrix& b,
                const Matrix& d);
  /// The copy of the operands to use next; null: the operands themselves.
  const Set* next() noexcept;

 private:
  std::vector<Set> sets_;
  std::size_t next_ = 0;
};

/// Collects the findings of one check of a configuration.
class Checker {
 public:
  Checker(Context& context, const TrialOptions& options) : context_(context), options_(options) {}

  /// Checks that the sampled elements of a result in memory of the Context's device have the bits
  /// of `want`, which is on the host.
  void exact(std::string_view op, std::string part, AnyMatrix written, const Sample& sample,
             ConstAnyMatrix want, std::string_view rule);
  /// Checks that all elements of a result have the bits of `want`, which is on the host.
  void exact(std::string_view op, std::string part, AnyMatrix written, ConstAnyMatrix want,
             std::string_view rule);
  /// Checks that the sampled elements of a result are within their bounds, and measures their
  /// accuracy.
  void bounded(std::string_view op, std::string part, AnyMatrix written, const Sample& sample,
               const Reference& reference, std::string rule);
  /// Checks that rows from all over a result equal those of the first configuration that passed the
  /// checks so far. `kept` holds these rows. Does nothing if something was wrong.
  void like_the_first(std::string_view op, std::string part, AnyMatrix written,
                      std::int64_t most_rows, Matrix& kept);
  /// Adds the outcome of another comparison of `compared` elements: it has found `fault`, or
  /// nothing if `fault` is empty.
  void add(std::string_view op, std::string part, DType output, std::int64_t compared,
           std::string_view rule, const std::string& fault);

  [[nodiscard]] bool passes() const noexcept;
  [[nodiscard]] Findings take() { return std::move(found_); }

 private:
  // Compares sampled elements of a result; `compare` gets them as a matrix on the host.
  void compare_sample(Finding finding, AnyMatrix written, const Sample& sample,
                      const std::function<Comparison(AnyMatrix)>& compare);

  Context& context_;
  const TrialOptions& options_;
  Findings found_;
};

/// A trial of an operation that has its own Config type, with to_choice(), from_choice() and ==.
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
        from_choice(choice, config) ? refusal(config) : "the numbers are not a valid configuration";
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
  bool needs_validation(const ConfigChoice& choice) final {
    Config config;
    return from_choice(choice, config) && may_crash(config);
  }
  std::string provenance(const ConfigChoice& choice) final {
    Config config;
    return from_choice(choice, config) ? provenance_of(config) : std::string();
  }

 protected:
  /// `op` is the name of the public function, and `output` the type of its result.
  TrialOf(Context& context, const TrialOptions& options, std::string_view op, DType output)
      : context_(context), options_(options), op_(op), output_(output) {}

  // The functions of Trial, with a Config instead of a ConfigChoice.
  [[nodiscard]] virtual std::vector<Config> configs() = 0;
  [[nodiscard]] virtual std::vector<Config> all_configs() { return configs(); }
  /// The default configuration, then the default of each engine, which may be the same.
  [[nodiscard]] virtual std::vector<Config> engine_configs() = 0;
  /// Why the configuration cannot run, for an operation whose run_config() does not throw that
  /// reason.
  [[nodiscard]] virtual std::string refusal(const Config&) { return {}; }
  virtual void compare(Checker& checker, const Config& config) = 0;
  virtual void run_config(const Config& config) = 0;
  [[nodiscard]] virtual std::int64_t scratch_of(const Config&) { return 0; }
  [[nodiscard]] virtual bool may_crash(const Config&) { return false; }
  [[nodiscard]] virtual std::string provenance_of(const Config&) { return {}; }

  /// Removes engines that exist only for tests. The first configuration, the default, always stays:
  /// it is such an engine only if no other engine can run.
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
