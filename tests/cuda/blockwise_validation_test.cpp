// SPDX-License-Identifier: Apache-2.0
// Validation of the wgmma kernel of blockwise products (int8 dW) by the tuner's helper program. The
// kernel takes part in tuning only where it was validated, and runs where it won.
#include <stdlib.h>  // NOLINT: setenv is POSIX's

#include <optional>
#include <set>
#include <string>

#include "autotune/entry/candidate.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/operations.hpp"
#include "autotune/session.hpp"
#include "autotune/tune.hpp"
#include "autotune/tuner_state.hpp"
#include "cuda/blockwise_support.hpp"
#include "support/device_memory.hpp"
#include "support/programs.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"
#include "switchback/tuner.hpp"

namespace switchback::test {
namespace {

using autotune::Entry;
using blockwise::BlockwiseProblem;
using blockwise::EngineId;

// A problem whose d has two by two tiles, of which the last ones have few rows and columns. All
// blocks of rows are whole, except for the last.
BlockwiseProblem dw_problem(std::int64_t m = 300) {
  return blockwise_problem(m, 150, 136, 128);
}

ConfigChoice choice_of(EngineId engine) {
  return blockwise::to_choice({engine, engine == EngineId::wgmma ? 256 : 0});
}

class CudaBlockwiseValidation : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    mark_blockwise_products(false);
    unsetenv("SWITCHBACK_TEST_BREAK");
  }
  void TearDown() override {
    unsetenv("SWITCHBACK_TEST_BREAK");
    mark_blockwise_products(true);
    Cuda::TearDown();
  }

  [[nodiscard]] TunerOptions with_helper(const char* mode = "read") const {
    TunerOptions options = tuner_options_in(directory_, mode);
    options.budget_per_key_s = 600;  // time enough even if other processes take the cores for long
    options.validator = validate_program();
    return options;
  }
  [[nodiscard]] TunerOptions without_helper() const {
    TunerOptions options = with_helper();
    options.validator = "no/such/program";
    return options;
  }

  // What a tuner learns of the engines: those that it measured, the failure of one, and its
  // warnings.
  struct Known {
    std::set<std::string> measured;  ///< engines
    std::optional<std::string> failure;
    std::vector<std::string> warnings;
  };
  [[nodiscard]] static Known tune(const TunerOptions& options, const BlockwiseProblem& p) {
    Context context(emulated());
    const auto tuner = Tuner::open(context, options);
    autotune::SessionOptions session;
    session.effort = autotune::Effort::quick;
    Known known;
    session.end = [&](std::size_t, const ConfigQuery& query, const autotune::TuneOutcome* outcome,
                      const std::string& why, const TuneSummary&) {
      ASSERT_NE(outcome, nullptr) << why;
      for (const autotune::Measured& one : outcome->search.measured) {
        const std::string engine = autotune::to_text(query.op, one.choice).engine;
        if (!one.failure.empty())
          known.failure = engine + ": " + one.failure;
        else if (!one.times_ms.empty())
          known.measured.insert(engine);
      }
      EXPECT_EQ(query, blockwise::to_query(p, context.state()));
    };
    autotune::run_session(tuner->state(), context, {blockwise::to_query(p, context.state())},
                          session);
    known.warnings = tuner->warnings();
    return known;
  }

  // Adds an entry to the tuner's cache: `engine` won, or it failed validation with the reason
  // `why`.
  void add(EngineId engine, const BlockwiseProblem& p, const std::string& why) const {
    Context context(emulated());
    const auto tuner = Tuner::open(context, with_helper());
    const ConfigQuery query = blockwise::to_query(p, context.state());
    Entry entry;
    entry.key = autotune::key_of(query, tuner->state().machine);
    entry.env = tuner->state().environment;
    const autotune::CandidateText text = autotune::to_text(query.op, choice_of(engine));
    entry.validated.push_back({text, why, autotune::time_now()});
    if (why.empty()) {
      autotune::Winner& winner = entry.winner.emplace();
      winner.candidate = text;
      winner.stats.count = 1;
      winner.effort = autotune::Effort::quick;
      winner.time = autotune::time_now();
    }
    tuner->state().add({entry});
  }

  const TemporaryDirectory directory_;
};

using Names = std::vector<std::string>;
using Engines = std::set<std::string>;

// The problems have all output types, both ways of splitting superblocks among thread blocks, and
// results that are added to the old values of d.
TEST_F(CudaBlockwiseValidation, TheHelperFindsItRight) {
  Context context(emulated());
  autotune::Validator validator(context.state(), {.command = {validate_program(), "--tuner"}});
  std::vector<BlockwiseProblem> problems = {dw_problem(), dw_problem(1),
                                            blockwise_problem(2 * 8192 + 100, 9, 21, 1024)};
  problems[1].accumulate = true;
  problems[1].output = DType::f16;
  problems[1].stride_a += 32;
  problems[1].stride_d += 5;
  problems[2].accumulate = true;
  problems[2].output = DType::bf16;
  for (const BlockwiseProblem& p : problems) {
    SCOPED_TRACE(blockwise::describe(p));
    const ConfigQuery query = blockwise::to_query(p, context.state());
    BlockwiseProblem same;
    ASSERT_TRUE(blockwise::from_query(query, same));
    EXPECT_EQ(same, p);
    for (const blockwise::BlockwiseConfig& config : blockwise::candidates(p, context.state())) {
      const autotune::Validation validation =
          validator.validate(query, blockwise::to_choice(config));
      EXPECT_EQ(validation.result, autotune::Validation::Result::right)
          << blockwise::describe(config) << ": " << validation.why;
    }
  }
  EXPECT_EQ(validator.starts(), 1);
}

// If a committed record shows that the wgmma kernel is right, the kernel needs no validation and is
// the default.
TEST_F(CudaBlockwiseValidation, WhatARecordHasSeenIsTheDefault) {
  mark_blockwise_products(true);
  Context context(emulated());
  const std::vector<blockwise::BlockwiseConfig> all = {{EngineId::wgmma, 256}, {EngineId::mma}};
  EXPECT_EQ(blockwise::candidates(dw_problem(), context.state()), all);
  EXPECT_EQ(tune(without_helper(), dw_problem()).measured, (Engines{"mma", "wgmma"}));
}

TEST_F(CudaBlockwiseValidation, WhatATunerMustValidateIsACandidateAfterTheDefault) {
  const std::vector<blockwise::BlockwiseConfig> by_default = {{EngineId::mma}};
  const std::vector<blockwise::BlockwiseConfig> both = {{EngineId::mma}, {EngineId::wgmma, 256}};
  const std::vector<blockwise::BlockwiseConfig> last = {{EngineId::dp4a}};
  Context context(emulated());
  EXPECT_TRUE(blockwise::is_tuned(context.state()));
  EXPECT_EQ(blockwise::candidates(dw_problem(), context.state()), both);
  EXPECT_FALSE(blockwise::needs_validation({EngineId::mma}));
  EXPECT_TRUE(blockwise::needs_validation({EngineId::wgmma}));
  BlockwiseProblem unaligned = dw_problem();
  unaligned.alignment = 1;
  EXPECT_EQ(blockwise::candidates(unaligned, context.state()), last);
  BlockwiseProblem of_stride = dw_problem();
  of_stride.stride_b += 8;
  EXPECT_EQ(blockwise::candidates(of_stride, context.state()), last);
  emulate_compute_capability(80);
  Context older(emulated());
  EXPECT_FALSE(blockwise::is_tuned(older.state()));
  EXPECT_EQ(blockwise::candidates(dw_problem(), older.state()), by_default);
  EXPECT_NE(blockwise::check_config(dw_problem(), {EngineId::wgmma}, older.state()), "");
  // On a CPU the engine wgmma is not listed, but a tuner's cache may name it.
  Context cpu(cpu_options());
  EXPECT_FALSE(blockwise::is_tuned(cpu.state()));
  BlockwiseProblem on_cpu = dw_problem();
  on_cpu.alignment = 0;
  on_cpu.accumulate = true;
  const auto trial = autotune::make_trial(cpu, blockwise::to_query(on_cpu, cpu.state()));
  ASSERT_EQ(trial->candidates().size(), 1u);
  EXPECT_EQ(trial->check(trial->candidates().front()), "");
}

// Validation compares the last element of d too, which belongs to another thread block's tile than
// the first.
TEST_F(CudaBlockwiseValidation, OneThatIsWrongInItsLastElementIsFound) {
  setenv("SWITCHBACK_TEST_BREAK", "wrong wgmma", 1);
  const Known known = tune(with_helper(), dw_problem());
  EXPECT_EQ(known.measured, Engines{"mma"});
  ASSERT_TRUE(known.failure.has_value());
  EXPECT_EQ(known.failure->find("wgmma: "), 0u);
  EXPECT_NE(known.failure->find(",135] is 0 where "), std::string::npos) << *known.failure;
}

// The tuner compares each engine with the oracle, not with another engine that may be wrong.
TEST_F(CudaBlockwiseValidation, AWrongEngineSpoilsNoOther) {
  break_blockwise_products(Fault::wrong, "dp4a");
  Context context(emulated());
  for (const bool accumulate : {false, true}) {
    BlockwiseProblem p = dw_problem();
    p.accumulate = accumulate;
    const auto trial = autotune::make_trial(context, blockwise::to_query(p, context.state()));
    EXPECT_NE(trial->check(choice_of(EngineId::dp4a)), "");
    EXPECT_EQ(trial->check(choice_of(EngineId::mma)), "");
  }
}

// Once a kernel was validated for one problem, it is the default for other problems too: on this
// kind of machine, with this driver, for results of this type, until it is found wrong.
TEST_F(CudaBlockwiseValidation, AValidationIsRemembered) {
  const Known first = tune(with_helper(), dw_problem());
  EXPECT_EQ(first.measured, (Engines{"mma", "wgmma"}));
  EXPECT_EQ(first.failure, std::nullopt);
  EXPECT_EQ(first.warnings, std::vector<std::string>());
  const BlockwiseProblem other = dw_problem(1000);
  {
    Context context(emulated());
    const auto tuner = Tuner::open(context, without_helper());
    const autotune::Answer answer =
        tuner->state().look_up(blockwise::to_query(other, context.state()), context.state());
    EXPECT_EQ(answer.origin, TuneOrigin::validated);
    EXPECT_EQ(answer.choice, choice_of(EngineId::wgmma));
    const BlockwiseProblem of_other_blocks = blockwise_problem(1000, 150, 136, 256);
    EXPECT_EQ(tuner->state()
                  .look_up(blockwise::to_query(of_other_blocks, context.state()), context.state())
                  .origin,
              TuneOrigin::fallback)
        << "another kernel";
  }
  const Known known = tune(without_helper(), other);
  EXPECT_EQ(known.measured, (Engines{"mma", "wgmma"}));
  EXPECT_EQ(known.warnings, std::vector<std::string>());

  BlockwiseProblem of_another_type = other;
  of_another_type.output = DType::bf16;
  EXPECT_EQ(tune(without_helper(), of_another_type).measured, Engines{"mma"});
  switchback_cuda_emu::options().driver_version += 10;
  EXPECT_EQ(tune(without_helper(), dw_problem(900)).measured, Engines{"mma"});
  switchback_cuda_emu::options().driver_version -= 10;
  EXPECT_EQ(tune(without_helper(), dw_problem(700)).measured, (Engines{"mma", "wgmma"}));
  add(EngineId::wgmma, dw_problem(500), "element (0,0) is 1, not 2");
  EXPECT_EQ(tune(without_helper(), dw_problem(800)).measured, Engines{"mma"});
}

TEST_F(CudaBlockwiseValidation, WhereItWonItRuns) {
  add(EngineId::wgmma, dw_problem(), "");
  Context context(emulated());
  EXPECT_EQ(blockwise_kernels(context, dw_problem()), Names{"blockwise_mma"}) << "without a tuner";
  const auto tuner = Tuner::open(context, with_helper());
  tuner->attach(context);
  EXPECT_EQ(blockwise_kernels(context, dw_problem()), Names{"blockwise_wgmma"});
  EXPECT_EQ(tuner->counters().hits, 1);
  EXPECT_EQ(blockwise_kernels(context, dw_problem(301)), Names{"blockwise_wgmma"})
      << "validated by that";
  EXPECT_EQ(blockwise_kernels(context, dw_problem(), 8), Names{"blockwise"}) << "another alignment";
  EXPECT_EQ(blockwise_kernels(context, dw_problem(), 0, "mma"), Names{"blockwise_mma"});
  EXPECT_EQ(tuner->counters().misses, 2);
  EXPECT_EQ(tuner->warnings(), std::vector<std::string>());

  // With `near_shapes`, an entry also serves similar shapes with another number of rows, in a
  // different number of whole blocks.
  TunerOptions near = with_helper();
  near.near_shapes = true;
  const auto near_tuner = Tuner::open(context, near);
  near_tuner->attach(context);
  EXPECT_EQ(blockwise_kernels(context, dw_problem(384)), Names{"blockwise_wgmma"});
}

TEST_F(CudaBlockwiseValidation, OtherGenerationsAskNobody) {
  for (const int capability : {80, 100}) {
    emulate_compute_capability(capability);
    Context context(emulated());
    const auto tuner = Tuner::open(context, with_helper("require"));
    tuner->attach(context);
    EXPECT_EQ(blockwise_kernels(context, dw_problem()), Names{"blockwise_mma"}) << capability;
    EXPECT_EQ(tuner->counters().misses, 0);
    for (const ConfigQuery& query :
         autotune::layer_queries(context, {16, 48, 80, DType::bf16, false}))
      EXPECT_NE(query.op, ConfigOp::gemm_blockwise) << capability;
  }
}

// The problems that can be tuned before a layer runs are those that the layer's backward asks for.
TEST_F(CudaBlockwiseValidation, ALayerAsksForWhatIsListed) {
  struct Asked : ConfigSource {
    bool find(const ConfigQuery& query, const ContextState&, ConfigChoice&) const override {
      if (query.op == ConfigOp::gemm_blockwise) queries.push_back(query);
      return false;
    }
    mutable std::vector<ConfigQuery> queries;
  };
  Context context(emulated());
  const TuneShape shape = {12, 48, 64, DType::bf16, false};
  std::vector<ConfigQuery> listed;
  for (const ConfigQuery& query : autotune::layer_queries(context, shape, autotune::Problems::all))
    if (query.op == ConfigOp::gemm_blockwise) listed.push_back(query);
  const auto asked = std::make_shared<Asked>();
  context.set_config_source(asked);
  LinearOptions options;
  options.in_features = shape.in_features;
  options.out_features = shape.out_features;
  options.dtype = shape.dtype;
  options.dw = WeightGradient::int8_block;
  SwitchbackLinear layer(context, options);
  const DeviceMatrix<bfloat16> w(context, Matrix<bfloat16>(64, 48));
  const DeviceMatrix<bfloat16> x(context, Matrix<bfloat16>(12, 48));
  const DeviceMatrix<bfloat16> y(context, Matrix<bfloat16>(12, 64));
  const DeviceMatrix<bfloat16> dw(context, Matrix<bfloat16>(64, 48));
  layer.set_weight(w.view());
  layer.forward(x.view(), y.view(), Save::copy);
  LinearGrads grads;
  grads.g = y.view();
  grads.dw = dw.view();
  layer.backward(grads);
  const DeviceMatrix<float> wide(context, Matrix<float>(64, 48));
  grads.dw = wide.view();
  layer.backward(grads);
  EXPECT_EQ(asked->queries, listed);
}

}  // namespace
}  // namespace switchback::test
