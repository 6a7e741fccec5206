// SPDX-License-Identifier: Apache-2.0
// The tuner and failures of a device: cuBLASLt algorithms that are wrong or refused, streams that
// are being captured, and versions that change.
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT: setenv is POSIX's

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/operations.hpp"
#include "autotune/session.hpp"
#include "autotune/store/snapshot.hpp"
#include "autotune/tune.hpp"
#include "autotune/tuner_state.hpp"
#include "cuda/cuda_support.hpp"
#include "gemm/cublaslt/cuda/algorithms.hpp"
#include "gemm/int8/candidates.hpp"
#include "linear/mode.hpp"
#include "support/device_memory.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {
namespace {

using autotune::Entry;
using gemm_int8::GemmConfig;
using switchback_cuda_emu::options;

gemm_int8::GemmProblem tuned_problem() {
  gemm_int8::GemmProblem p;
  p.m = 32, p.n = 48;
  p.k = p.stride_a = p.stride_b = 64;
  p.stride_d = 48;
  p.output = DType::f32;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.alignment = 16;
  return p;
}

TunerOptions options_in(const TemporaryDirectory& directory, const char* mode = "read") {
  TunerOptions options = tuner_options_in(directory, mode);
  options.budget_per_key_s = 600;  // time enough even if other processes take the cores for long
  return options;
}

// The tuner finds a wrong algorithm before it times it, and records the failure. The algorithm
// never wins.
TEST_F(Cuda, TheTunerValidatesEveryAlgorithm) {
  Context context(emulated());
  const ConfigQuery query = gemm_int8::to_query(tuned_problem(), context.state());
  GemmConfig wrong;
  for (const GemmConfig& config : gemm_int8::candidates(tuned_problem(), context.state()))
    if (config.cublaslt.algorithm &&
        !gemm_int8::needs_validation(tuned_problem(), config, context.state()))
      wrong = config;
  ASSERT_TRUE(wrong.cublaslt.algorithm.has_value());
  options().corrupt = pattern_of(*wrong.cublaslt.algorithm);
  autotune::SearchOptions search;
  search.effort = autotune::Effort::quick;
  const autotune::TuneOutcome outcome = autotune::tune_problem(
      context, query, autotune::machine_of(context.state()), {}, std::move(search));
  int failures = 0;
  const auto is_wrong = [&](const autotune::CandidateText& candidate) {
    std::string why;
    const auto choice = autotune::to_choice(query.op, candidate, why);
    EXPECT_TRUE(choice.has_value()) << why;
    return choice && test::config_of(*choice).cublaslt.algorithm == wrong.cublaslt.algorithm;
  };
  for (const autotune::Validated& validated : outcome.entry.validated) {
    EXPECT_EQ(is_wrong(validated.candidate), !validated.is_right())
        << autotune::describe(validated.candidate);
    if (validated.is_right()) continue;
    ++failures;
    EXPECT_NE(validated.why.find("int32 sums"), std::string::npos) << validated.why;
  }
  EXPECT_GE(failures, 1);
  EXPECT_FALSE(is_wrong(outcome.entry.winner->candidate));
}

// The tuner checks engines that do not write int32 sums by their scaled outputs. It tries a packed
// b with all engines that can read it.
TEST_F(Cuda, TheTunerValidatesEnginesWithoutInt32) {
  show_fused_products(true);
  Context context(emulated());
  gemm_int8::GemmProblem p = tuned_problem();
  p.m = 150, p.n = p.stride_d = 1024;  // more rows of sums than an eighth of the L2 cache holds
  p.k = p.stride_a = 16;
  p.packed_for = gemm_int8::EngineId::cublaslt;
  p.stride_b = 0;
  autotune::SearchOptions search;
  search.effort = autotune::Effort::quick;
  search.probe = [](const ConfigChoice&, double) { return autotune::Validation(); };
  const autotune::TuneOutcome outcome =
      autotune::tune_problem(context, gemm_int8::to_query(p, context.state()),
                             autotune::machine_of(context.state()), {}, std::move(search));
  show_fused_products(false);
  std::set<std::string> measured;
  for (const autotune::Measured& one : outcome.search.measured) {
    EXPECT_EQ(one.failure, "");
    if (!one.times_ms.empty())
      measured.insert(autotune::to_text(ConfigOp::gemm_int8, one.choice).engine);
  }
  for (const char* engine : {"cublaslt", "cublaslt_panels", "dp4a", "fused"})
    EXPECT_TRUE(measured.contains(engine)) << engine;
}

// Test fixture for the tuner's helper program, which validates kernels in Tuner::tune() and in mode
// tune. Of the emulated device's fused kernels on 9.0, those with tiles of 128 rows have to be
// validated; a record shows that the smaller ones are right.
class CudaValidator : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    show_fused_products(true);
    unsetenv("SWITCHBACK_TEST_BREAK");
  }
  void TearDown() override {
    unsetenv("SWITCHBACK_TEST_BREAK");
    show_fused_products(false);
    mark_blockwise_products(true);
    Cuda::TearDown();
  }
  [[nodiscard]] TunerOptions with_helper(const char* mode = "read") const {
    TunerOptions options = options_in(directory, mode);
    options.validator = validate_program();
    return options;
  }
  [[nodiscard]] TunerOptions without_helper() const {
    TunerOptions options = options_in(directory);
    options.validator = "no/such/program";
    return options;
  }
  // What a tuner learns of the fused candidates of a product: those that it measured, those that
  // failed, and its warnings.
  struct Known {
    std::set<std::int64_t> measured, failed;  ///< the numbers of rows of their tiles
    std::vector<std::string> why, warnings;
  };
  static Known tune(const TunerOptions& options) {
    Context context(emulated());
    const auto tuner = Tuner::open(context, options);
    gemm_int8::GemmProblem p = tuned_problem();
    p.m = 150;
    autotune::SessionOptions session;
    session.effort = autotune::Effort::quick;
    autotune::run_session(tuner->state(), context, {gemm_int8::to_query(p, context.state())},
                          session);
    Known known;
    known.warnings = tuner->warnings();
    autotune::Snapshot written;
    written.add_file(tuner->cache_file());
    written.for_each([&](const Entry& entry) {
      for (const autotune::Validated& validated : entry.validated) {
        if (validated.candidate.engine != "fused") continue;
        std::string why;
        const auto choice = autotune::to_choice(ConfigOp::gemm_int8, validated.candidate, why);
        ASSERT_TRUE(choice.has_value()) << why;
        const GemmConfig config = test::config_of(*choice);
        (validated.is_right() ? known.measured : known.failed).insert(config.mc);
        if (!validated.is_right()) known.why.push_back(validated.why);
      }
    });
    return known;
  }

  const TemporaryDirectory directory;
};

// Validation compares the last row of d too, which belongs to another tile than the first row.
TEST_F(CudaValidator, AFusedProductThatIsWrongInItsLastRowIsFound) {
  setenv("SWITCHBACK_TEST_BREAK", "wrong 128", 1);
  const Known known = tune(with_helper());
  EXPECT_EQ(known.measured, std::set<std::int64_t>{64});
  EXPECT_EQ(known.failed, std::set<std::int64_t>{128});
  ASSERT_FALSE(known.why.empty());
  EXPECT_NE(known.why.front().find("[149,"), std::string::npos) << known.why.front();
}

TEST_F(CudaValidator, WithoutAHelperTheyAreLeftOutAloud) {
  const Known known = tune(without_helper());
  EXPECT_EQ(known.measured, std::set<std::int64_t>{64});
  EXPECT_EQ(known.failed, std::set<std::int64_t>());
  ASSERT_EQ(known.warnings.size(), 1u);
  EXPECT_NE(known.warnings.front().find("no/such/program"), std::string::npos)
      << known.warnings.front();
}

// A kernel that was validated for one problem is the default of other problems from then on. It is
// not validated again on this kind of machine with this driver.
TEST_F(CudaValidator, AValidatedKernelIsTheDefaultFromThenOn) {
  gemm_int8::GemmProblem other = tuned_problem();
  other.m = 1000, other.n = other.stride_d = 512;
  other.packed_for = gemm_int8::EngineId::cublaslt;
  other.stride_b = 0;
  const auto answer_to = [&](const gemm_int8::GemmProblem& p) {
    Context context(emulated());
    const auto tuner = Tuner::open(context, options_in(directory));
    const ConfigQuery query = gemm_int8::to_query(p, context.state());
    const autotune::Answer answer = tuner->state().look_up(query, context.state());
    ConfigChoice found;
    EXPECT_EQ(tuner->state().find(query, context.state(), found),
              answer.origin != TuneOrigin::fallback);
    EXPECT_EQ(tuner->counters().hits, 0);
    EXPECT_EQ(tuner->counters().misses, 1);
    return answer;
  };
  EXPECT_EQ(answer_to(other).origin, TuneOrigin::fallback);
  const Known known = tune(with_helper());
  EXPECT_EQ(known.measured, (std::set<std::int64_t>{64, 128}));
  EXPECT_EQ(known.failed, std::set<std::int64_t>());
  EXPECT_EQ(known.warnings, std::vector<std::string>());

  const autotune::Answer validated = answer_to(other);
  EXPECT_EQ(validated.origin, TuneOrigin::validated);
  const GemmConfig config = test::config_of(validated.choice);
  EXPECT_EQ(config.engine, gemm_int8::EngineId::fused);
  EXPECT_EQ(config.mc, 128);
  gemm_int8::GemmProblem of_another_type = other;
  of_another_type.output = DType::bf16;
  EXPECT_EQ(answer_to(of_another_type).origin, TuneOrigin::fallback);
  options().driver_version += 10;
  EXPECT_EQ(answer_to(other).origin, TuneOrigin::fallback);
}

TEST_F(CudaValidator, AKernelThatFailedLaterIsNoDefault) {
  Context context(emulated());
  const auto tuner = Tuner::open(context, options_in(directory));
  gemm_int8::GemmProblem large = tuned_problem();
  large.m = 1000, large.n = large.stride_d = 512;
  const auto query_of = [&](std::int64_t rows) {
    gemm_int8::GemmProblem p = large;
    p.m = rows;
    return gemm_int8::to_query(p, context.state());
  };
  const auto add = [&](const GemmConfig& config, const char* why) {
    Entry entry;
    entry.key = autotune::key_of(query_of(1000), tuner->state().machine);
    entry.env = tuner->state().environment;
    entry.validated.push_back({autotune::to_text(ConfigOp::gemm_int8, gemm_int8::to_choice(config)),
                               why, autotune::time_now()});
    tuner->state().add({entry});
  };
  const auto answer = [&] { return tuner->state().look_up(query_of(1200), context.state()); };
  const auto tile = [](const GemmConfig& config) { return std::pair(config.mc, config.nc); };
  const GemmConfig seen = gemm_int8::default_config(large, context.state());
  EXPECT_EQ(seen.mc, 64);
  GemmConfig unseen;
  for (const GemmConfig& config : gemm_int8::candidates(large, context.state()))
    if (config.engine == gemm_int8::EngineId::fused && config.mc == 128) unseen = config;
  EXPECT_EQ(answer().origin, TuneOrigin::fallback);
  add(unseen, "");
  EXPECT_EQ(answer().origin, TuneOrigin::validated);
  EXPECT_EQ(tile(test::config_of(answer().choice)), tile(unseen));
  add(unseen, "int32 sums: wrong");
  EXPECT_EQ(answer().origin, TuneOrigin::fallback);
  // A kernel found wrong on this machine is not used, even if a committed record shows that it was
  // right elsewhere.
  add(seen, "int32 sums: wrong");
  EXPECT_EQ(answer().origin, TuneOrigin::validated);
  EXPECT_NE(tile(test::config_of(answer().choice)), tile(seen));
}

// All kernels are validated once, before any problem is tuned. Those that were right are part of
// the default from then on. A grouped kernel is validated separately for column scales, for which a
// record shows it right, and for one scale of each group.
TEST_F(CudaValidator, KernelsAreValidatedBeforeProblems) {
  setenv("SWITCHBACK_TEST_BREAK", "crash 128", 1);
  mark_blockwise_products(false);
  Context context(emulated());
  const auto validate_all = [&] {
    const auto tuner = Tuner::open(context, with_helper());
    return autotune::validate_kernels(
        tuner->state(), context, [&](const ConfigQuery& query, const ConfigChoice& choice) {
          return tuner->state().validate(query, context.state(), choice, 600);
        });
  };
  const auto default_of_groups = [&](gemm_int8::ScaleMode scale) {
    gemm_int8::GemmProblem p = tuned_problem();
    p.layout = gemm_int8::GroupLayout::packed;
    p.groups = 2;
    p.scale = scale;
    const auto tuner = Tuner::open(context, options_in(directory));
    ConfigChoice choice;
    return tuner->state().by_default(gemm_int8::to_query(p, context.state()), context.state(),
                                     choice)
               ? test::config_of(choice).engine
               : gemm_int8::default_config(p, context.state()).engine;
  };
  EXPECT_EQ(default_of_groups(gemm_int8::ScaleMode::row_col), gemm_int8::EngineId::fused);
  EXPECT_EQ(default_of_groups(gemm_int8::ScaleMode::row_scalar), gemm_int8::EngineId::dp4a);

  int right = 0, wrong = 0;
  int right_of_dw = 0;
  for (const autotune::KernelValidation& one : validate_all()) {
    const bool is_right = one.validation.result == autotune::Validation::Result::right;
    if (one.query.op == ConfigOp::gemm_blockwise) {
      EXPECT_TRUE(is_right) << one.validation.why;
      ++right_of_dw;
      continue;
    }
    ++(is_right ? right : wrong);
    EXPECT_EQ(is_right, one.query.op == ConfigOp::grouped_int8) << one.validation.why;
    if (is_right)
      EXPECT_EQ(one.kernel.variant, static_cast<std::int64_t>(gemm_int8::ScaleMode::row_scalar));
    else
      EXPECT_NE(one.validation.why.find("crashed with signal 6"), std::string::npos)
          << one.validation.why;
  }
  // The expected counts: of products and of grouped products two kernels each, in three types. Of
  // dW, in three types, two kernels for blocks of 256 rows and one for each other length.
  EXPECT_EQ(right, 6);
  EXPECT_EQ(wrong, 6);
  EXPECT_EQ(right_of_dw, 15);
  EXPECT_EQ(default_of_groups(gemm_int8::ScaleMode::row_scalar), gemm_int8::EngineId::fused);
  unsetenv("SWITCHBACK_TEST_BREAK");
  // Kernels that were wrong are validated again.
  const auto again = validate_all();
  EXPECT_EQ(again.size(), 6u);
  for (const autotune::KernelValidation& one : again)
    EXPECT_EQ(one.validation.result, autotune::Validation::Result::right) << one.validation.why;
  EXPECT_TRUE(validate_all().empty());
}

// 10.3 computes int8 at a small part of the rate of bf16, so mode auto uses standard, and the tuner
// warns.
TEST_F(Cuda, ModeAutoIsStandardWhereTensorCoresHaveNoInt8) {
  options().compute_capability = 103;
  const TemporaryDirectory directory;
  Context context(emulated());
  const auto tuner = Tuner::open(context, options_in(directory));
  ASSERT_EQ(tuner->warnings().size(), 1u);
  EXPECT_NE(tuner->warnings().front().find("10.3"), std::string::npos);
  linear::PassProblem p;
  p.device = DeviceKind::emulated;
  p.m = 64, p.n = 48, p.k = 32;
  EXPECT_EQ(linear::candidates(p, context.state()), std::vector<Mode>{Mode::standard});
  options().compute_capability = 100;
  Context other(emulated());
  EXPECT_EQ(linear::candidates(p, other.state()).size(), 3u);
  EXPECT_EQ(Tuner::open(other, options_in(directory))->warnings(), std::vector<std::string>());
}

// Validation takes time, but a call in mode tune still measures the finalists again against the
// default.
TEST_F(CudaValidator, ModeTuneValidatesThem) {
  Context context(emulated());
  const auto tuner = Tuner::open(context, with_helper("tune"));
  tuner->attach(context);
  LayerOnDevice layer(context, Mode::rowwise);
  layer.layer.forward(layer.x.view(), layer.y.view(), Save::nothing);
  context.synchronize();
  std::set<std::string> engines;
  autotune::Snapshot written;
  written.add_file(tuner->cache_file());
  written.for_each([&](const Entry& entry) {
    for (const autotune::Validated& validated : entry.validated)
      engines.insert(validated.candidate.engine);
  });
  EXPECT_TRUE(engines.contains("fused"));
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());
}

// Nothing is measured while a stream is being captured; after the capture the problem is measured.
TEST_F(Cuda, NeverTunesInACapture) {
  const TemporaryDirectory directory;
  Context context(emulated());
  const DeviceMatrix<float> x(context, normal_matrix<float>(8, 48, 1));
  const DeviceMatrix<std::int8_t> q(context, 8, 48);
  const DeviceMatrix<float> absmax(context, 1, 8);
  const auto call = [&] { quantize_rowwise(context, x.view(), q.view(), absmax.span()); };
  call();  // this first call allocates the memory
  const auto tuner = Tuner::open(context, options_in(directory, "tune"));
  tuner->attach(context);
  core::DeviceRuntime& runtime = *context.state().runtime;
  context.synchronize();
  runtime.begin_capture();
  call();
  const auto graph = runtime.end_capture();
  EXPECT_EQ(tuner->counters().misses, 1);
  EXPECT_FALSE(std::filesystem::exists(tuner->cache_file()));
  call();
  EXPECT_EQ(tuner->counters().hits, 1);
  EXPECT_TRUE(std::filesystem::exists(tuner->cache_file()));
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());
}

// A tuned algorithm is valid only for the cuBLASLt version with which it was measured.
TEST_F(Cuda, AnotherVersionOfTheLibraryIsAMiss) {
  const TemporaryDirectory directory;
  const TuneShape shape{32, 64, 48, DType::f32, false};
  TuneLimits limits;
  limits.max_candidates = 2;
  {
    Context context(emulated());
    Tuner::open(context, options_in(directory))->tune(context, {shape}, limits);
  }
  options().cublaslt_version += 1;
  Context context(emulated());
  const auto tuner = Tuner::open(context, options_in(directory));
  gemm_int8::GemmProblem packed = tuned_problem();
  packed.packed_for = gemm_int8::EngineId::cublaslt;
  packed.stride_b = 0;
  const auto answer =
      tuner->state().look_up(gemm_int8::to_query(packed, context.state()), context.state());
  EXPECT_EQ(answer.origin, TuneOrigin::fallback);
  EXPECT_TRUE(answer.refused);
  ASSERT_FALSE(tuner->warnings().empty());
  EXPECT_NE(tuner->warnings().front().find("measured with cuBLASLt"), std::string::npos)
      << tuner->warnings().front();
}

// If cuBLASLt now refuses a stored algorithm, the default runs, and one warning is given.
TEST_F(Cuda, AnAlgorithmThatIsRefusedAtRunTimeIsTheDefaultAloud) {
  const TemporaryDirectory directory;
  Context context(emulated());
  const auto tuner = Tuner::open(context, options_in(directory));
  gemm_int8::GemmProblem p = tuned_problem();
  p.output = DType::s32;
  p.scale = gemm_int8::ScaleMode::none;
  const ConfigQuery query = gemm_int8::to_query(p, context.state());
  GemmConfig explicit_one;
  for (const GemmConfig& config : gemm_int8::all_candidates(p, context.state()))
    if (config.cublaslt.algorithm && config.engine == gemm_int8::EngineId::cublaslt)
      explicit_one = config;
  Entry entry;
  entry.key = autotune::key_of(query, tuner->state().machine);
  entry.env = tuner->state().environment;
  autotune::Winner& winner = entry.winner.emplace();
  winner.candidate = autotune::to_text(query.op, gemm_int8::to_choice(explicit_one));
  winner.stats.count = 1;
  winner.time = autotune::time_now();
  tuner->state().add({entry});
  tuner->attach(context);
  options().refuse_at_run = pattern_of(*explicit_one.cublaslt.algorithm);
  ProductOnDevice product(context, p.m, p.n, p.k);
  for (int i = 0; i < 3; ++i) {
    product.run();
    EXPECT_TRUE(product.right());
  }
  ASSERT_EQ(tuner->warnings().size(), 1u);
  EXPECT_NE(tuner->warnings().front().find("its entry is not used"), std::string::npos)
      << tuner->warnings().front();
  EXPECT_EQ(tuner->counters().hits, 1);
  EXPECT_EQ(tuner->counters().refused, 2);
}

// The time of tuning depends on the number of candidates of all problems of a layer.
TEST_F(Cuda, AProblemHasFewAlgorithmsUnlessAllAreAskedFor) {
  using products::cuda::few_ranked;
  Context context(emulated());
  std::size_t products = 0;
  std::size_t in_all = 0;
  for (const ConfigQuery& query : autotune::layer_queries(
           context, {160, 512, 768, DType::bf16, true}, autotune::Problems::layers)) {
    SCOPED_TRACE(autotune::describe(query));
    const auto trial = autotune::make_trial(context, query);
    const std::vector<ConfigChoice> some = trial->candidates();
    const std::vector<ConfigChoice> all = trial->all_candidates();
    EXPECT_EQ(some.front(), all.front());
    for (const ConfigChoice& choice : some) {
      EXPECT_NE(std::find(all.begin(), all.end(), choice), all.end());
      // A committed record shows that every kernel for 9.0 gave right results.
      EXPECT_FALSE(trial->needs_validation(choice));
    }
    in_all += some.size();
    // Candidates of the engine cublaslt are named algorithms, and cuBLASLt's own choice.
    const auto of_library = [&](const std::vector<ConfigChoice>& among) {
      return std::count_if(among.begin(), among.end(), [&](const ConfigChoice& choice) {
        return autotune::to_text(query.op, choice).engine == "cublaslt";
      });
    };
    if (of_library(some) == 0) continue;
    ++products;
    EXPECT_LE(of_library(some), static_cast<std::ptrdiff_t>(few_ranked));
    EXPECT_GT(of_library(all), static_cast<std::ptrdiff_t>(few_ranked));
  }
  EXPECT_EQ(products, 5u);  // forward and dX, each with scales of rows or one scale, and dW
  EXPECT_LE(in_all, 125u);
}

}  // namespace
}  // namespace switchback::test
