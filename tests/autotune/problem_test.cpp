// SPDX-License-Identifier: Apache-2.0
// Keys and configurations of the tuning cache as text: reading gives what was written, and equal
// values have equal text.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "autotune/entries.hpp"
#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/layer_queries.hpp"
#include "gemm/blockwise/problem.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/config.hpp"
#include "linear/mode.hpp"
#include "quant/config.hpp"
#include "support/device.hpp"
#include "support/tuning.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

Machine machine(const std::string& design = {}) {
  Machine m;
  m.backend = "cpu";
  m.design = design;
  m.isa = "avx512_vnni";
  m.cores = 2;
  return m;
}
Machine gpu() {
  Machine m;
  m.backend = "cuda";
  m.compute_capability = 90;
  m.multiprocessors = 132;
  m.memory_gib = 144;
  m.mig = "1g.18gb";
  return m;
}

blockwise::BlockwiseProblem blockwise_problem() {
  blockwise::BlockwiseProblem p;
  p.n = 5, p.k = 7, p.m = 300;
  p.block_rows = 256;
  p.padded_m = 512;
  p.stride_a = 512, p.stride_b = 528, p.stride_d = 9;
  p.output = DType::bf16;
  p.accumulate = true;
  return p;
}

// Queries of layers with and without groups, of a blockwise product, and at last of a product on a
// GPU.
std::vector<ConfigQuery> some_queries() {
  Context context(test::cpu_options());
  std::vector<ConfigQuery> queries = layer_queries(context, {16, 48, 80, DType::bf16, true});
  for (const ConfigQuery& query : layer_queries(context, {96, 48, 80, DType::bf16, true, 4}))
    if (std::find(queries.begin(), queries.end(), query) == queries.end()) queries.push_back(query);
  queries.push_back(blockwise::to_query(blockwise_problem(), context.state()));
  floating::Problem p;
  p.m = 3, p.n = 5, p.k = 7, p.lda = 7, p.ldb = 7, p.ldd = 5;
  p.device = DeviceKind::cuda;
  p.compute_capability = 90;
  queries.push_back(floating::to_query(p));
  return queries;
}

TEST(Problem, KeysComeBackAsTheQueriesTheyAreOf) {
  std::set<std::string> keys;
  const std::vector<ConfigQuery> queries = some_queries();
  for (const ConfigQuery& query : queries)
    for (const Machine& each : {machine(), machine("AMD family 26 model 2"), gpu()})
      for (const Policy policy : {Policy{}, Policy{true, false}}) {
        if ((each == gpu()) != (&query == &queries.back())) continue;
        SCOPED_TRACE(describe(query));
        EXPECT_NE(describe(query), "unknown");
        const Key key = key_of(query, each, policy);
        EXPECT_TRUE(keys.insert(key.json).second) << key.json;
        EXPECT_EQ(key.json.find("index"), std::string::npos);  // which GPU of several is never said
        std::string why;
        const auto parts = parse_key(key.json, why);
        ASSERT_TRUE(parts.has_value()) << why;
        EXPECT_EQ(parts->query, query);
        EXPECT_EQ(parts->machine, each);
        EXPECT_EQ(parts->policy, policy);
      }
  EXPECT_GT(queries.size(), 25u);
}

// Two CPU designs with the same instruction set are two kinds of machine.
TEST(Problem, MachinesHaveNames) {
  EXPECT_EQ(machine_name(machine()), "cpu-avx512_vnni-2-cores");
  const Machine zen5 = machine("AMD family 26 model 2");
  EXPECT_EQ(describe(zen5), "cpu AMD family 26 model 2, avx512_vnni, 2 cores");
  EXPECT_EQ(machine_name(zen5), "cpu-AMD-family-26-model-2-avx512_vnni-2-cores");
  EXPECT_EQ(machine_name(gpu()), "cuda-sm_90-132-multiprocessors-144-GiB-MIG-1g.18gb");
  const Context context(test::cpu_options());
  EXPECT_NE(machine_of(context.state()).design, "");
}

// Blockwise products that differ only in the number of rows have keys of one family, however many
// whole blocks the rows fill.
TEST(Problem, FamiliesOfBlockwiseProducts) {
  Context context(test::cpu_options());
  blockwise::BlockwiseProblem p = blockwise_problem();
  const ConfigQuery query = blockwise::to_query(p, context.state());
  EXPECT_EQ(describe(query),
            "int8 blockwise m=300 n=5 k=7 blocks of 256 rows bf16 accumulate strides 512,528,9");
  blockwise::BlockwiseProblem same;
  ASSERT_TRUE(blockwise::from_query(query, same));
  EXPECT_EQ(same, p);
  p.m = 1000, p.padded_m = p.stride_a = 1024, p.stride_b = 1040;
  const ConfigQuery more = blockwise::to_query(p, context.state());
  EXPECT_EQ(family_of(query, machine(), {}).key, family_of(more, machine(), {}).key);
  EXPECT_EQ(family_of(more, machine(), {}).m, 1000);
  p.block_rows = 200;
  EXPECT_EQ(describe(blockwise::to_query(p, context.state())), "unknown");
}

TEST(Problem, OtherKeysAreRefusedWithAReason) {
  const Key key = key_of(some_queries().front(), machine());
  const auto why_not = [](const std::string& text) {
    std::string why;
    EXPECT_FALSE(parse_key(text, why).has_value()) << text;
    return why;
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    return test::replaced(key.json, from, to);
  };
  EXPECT_EQ(why_not("[1]"), "the key is not a JSON object");
  EXPECT_EQ(why_not("{}"), "the key has no 'backend'");
  EXPECT_EQ(why_not(replaced("\"op\":\"gemm_standard\"", "\"op\":\"sort\"")),
            "op 'sort' is unknown");
  EXPECT_EQ(why_not(replaced("\"bf16\"", "\"bf17\"")), "the key's input 'bf17' is unknown");
  EXPECT_EQ(why_not(replaced("\"m\":16", "\"m\":\"16\"")), "the key's 'm' is not an integer");
  EXPECT_EQ(why_not(replaced("\"m\":16", "\"m\":16,\"moon\":1")),
            "the key has members that this version does not know");
}

// Configurations of every operation survive writing and reading, also a cuBLASLt algorithm, whose
// parameters are stored one by one.
TEST(Problem, ConfigurationsComeBack) {
  const auto round_trip = [](ConfigOp op, const ConfigChoice& choice) {
    const CandidateText text = to_text(op, choice);
    std::string why;
    const auto back = to_choice(op, text, why);
    ASSERT_TRUE(back.has_value()) << describe(text) << ": " << why;
    EXPECT_EQ(*back, choice) << describe(text);
  };
  quant::Config q;
  q.engine = quant::Engine::highway;
  q.task_elements = 123;
  q.stream = true;
  q.tile_rows = 64;
  q.tile_cols = 128;
  q.panel_cols = 256;
  round_trip(ConfigOp::quantize, quant::to_choice(q));
  gemm_int8::GemmConfig g;
  g.engine = gemm_int8::EngineId::avx512_vnni;
  g.weights = gemm_int8::Weights::packed;
  g.mc = 96, g.nc = 512, g.kc = 1024, g.threads = 2;
  round_trip(ConfigOp::gemm_int8, gemm_int8::to_choice(g));
  round_trip(ConfigOp::grouped_int8, gemm_int8::to_choice(g));
  g.engine = gemm_int8::EngineId::cublaslt;
  g.cublaslt.algorithm = CublasLtAlgorithm{21, 20, 15, 2, 1, 1, 3, 4, 5};
  g.cublaslt.workspace_mib = 64;
  round_trip(ConfigOp::gemm_int8, gemm_int8::to_choice(g));
  EXPECT_NE(
      describe(to_text(ConfigOp::gemm_int8, gemm_int8::to_choice(g))).find("cublaslt_tile=20"),
      std::string::npos);
  gemm_int8::GemmConfig fused;
  fused.engine = gemm_int8::EngineId::fused;
  fused.mc = 128, fused.nc = 256, fused.cluster = 2;
  fused.raster = 1, fused.swizzle = 8;
  round_trip(ConfigOp::gemm_int8, gemm_int8::to_choice(fused));
  EXPECT_EQ(test::config_of(gemm_int8::to_choice(fused)), fused);
  floating::Config s;
  s.engine = floating::EngineId::onednn_matmul;
  s.pack_b = true;
  round_trip(ConfigOp::gemm_floating, floating::to_choice(s));
  round_trip(ConfigOp::gemm_blockwise, blockwise::to_choice({blockwise::EngineId::wgmma, 256}));
  round_trip(
      ConfigOp::layer_mode,
      linear::to_choice({{Mode::global, Mode::standard, Mode::rowwise, Mode::rowwise_shared}}));
  round_trip(
      ConfigOp::grouped_layer_mode,
      linear::to_choice({{Mode::rowwise, Mode::standard, Mode::global, Mode::rowwise_shared}}));

  CandidateText text = to_text(ConfigOp::gemm_int8, gemm_int8::to_choice(g));
  std::string why;
  text.engine = "abacus";
  EXPECT_FALSE(to_choice(ConfigOp::gemm_int8, text, why).has_value());
  EXPECT_EQ(why, "engine 'abacus' is unknown");
  text.engine = "cublaslt";
  text.attributes.emplace_back("beads", 7);
  EXPECT_FALSE(to_choice(ConfigOp::gemm_int8, text, why).has_value());
  EXPECT_EQ(why, "the configuration has attributes that this version does not know");
}

TEST(Problem, FamiliesDifferInTheTokensAlone) {
  Context context(test::cpu_options());
  const auto families = [&](std::int64_t rows) {
    std::vector<Family> all;
    for (const ConfigQuery& query : layer_queries(context, {rows, 48, 80, DType::f32, false}))
      all.push_back(family_of(query, machine(), {}));
    return all;
  };
  const std::vector<Family> some = families(100);
  const std::vector<Family> more = families(113);
  ASSERT_EQ(some.size(), more.size());
  int with_tokens = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(some[i].key, more[i].key);
    if (some[i].m == 100) {
      ++with_tokens;
      EXPECT_EQ(more[i].m, 113);
    }
  }
  EXPECT_GE(with_tokens, 16);
}

TEST(Problem, WhatAnEntryWasMeasuredWithMattersAsFarAsItsEngineDependsOnIt) {
  Environment then;
  then.kernels = "k1";
  then.onednn = "2.6";
  then.openblas = "0.3";
  then.cublaslt = "13.0";
  const auto differs = [&](ConfigOp op, const char* engine, std::string Environment::*member) {
    Environment now = then;
    now.*member = "other";
    return mismatch(op, engine, then, now);
  };
  EXPECT_EQ(differs(ConfigOp::gemm_int8, "avx512_vnni", &Environment::kernels),
            "measured with kernels 'k1', not with the current 'other'");
  struct Dependence {
    ConfigOp op;
    const char* engine;
    std::string Environment::*member;
    bool matters;
  };
  for (const auto& [op, engine, member, matters] :
       {Dependence{ConfigOp::gemm_int8, "avx512_vnni", &Environment::onednn, false},
        {ConfigOp::gemm_int8, "onednn", &Environment::onednn, true},
        {ConfigOp::gemm_floating, "onednn_matmul", &Environment::kernels, false},
        {ConfigOp::gemm_floating, "onednn_matmul", &Environment::onednn, true},
        {ConfigOp::gemm_floating, "openblas", &Environment::onednn, false},
        {ConfigOp::gemm_int8, "cublaslt_panels", &Environment::cublaslt, true},
        // Engine cublaslt dequantizes with the library's own kernels.
        {ConfigOp::gemm_int8, "cublaslt", &Environment::kernels, true},
        {ConfigOp::layer_mode, "rowwise", &Environment::onednn, true},
        {ConfigOp::quantize, "highway", &Environment::driver, false},
        {ConfigOp::quantize, "highway", &Environment::product, false},
        {ConfigOp::quantize, "highway", &Environment::tool, false}})
    EXPECT_EQ(!differs(op, engine, member).empty(), matters) << engine;
}

}  // namespace
}  // namespace switchback::autotune
