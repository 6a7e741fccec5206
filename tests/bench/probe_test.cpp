// SPDX-License-Identifier: Apache-2.0
// Candidates that are proven in a process of their own.
#include "bench/machine/probe.hpp"

#include <gtest/gtest.h>

#include "autotune/layer_queries.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"

namespace switchback::bench {
namespace {

TEST(Probe, SaysHowAChildEnded) {
  const auto shell = [](const char* script, double limit_s = 20) {
    return run_child({std::string("/bin") + "/sh", "-c", script}, limit_s);
  };
  const ChildResult fine = shell("echo done; exit 0");
  EXPECT_EQ(fine.how, "");
  EXPECT_EQ(fine.exit_code, 0);
  EXPECT_EQ(fine.output, "done\n");
  EXPECT_EQ(shell("exit 3").exit_code, 3);
  const ChildResult crashed = shell("kill -SEGV $$");
  EXPECT_EQ(crashed.exit_code, -1);
  EXPECT_TRUE(crashed.how.starts_with("crashed with signal 11")) << crashed.how;
  const ChildResult hung = shell("exec sleep 600", 0.2);
  EXPECT_TRUE(hung.how.starts_with("took longer than")) << hung.how;
  EXPECT_LE(shell("yes | head -c 100000").output.size(), 4096u);
  const ChildResult missing = run_child({"no/such/program"}, 5);
  EXPECT_NE(missing.how.find("no/such/program"), std::string::npos) << missing.how;
}

// The other side is the program itself.
TEST(Probe, ProvesCandidatesInTheProgram) {
  ContextOptions options;
  options.device = "cpu";
  options.threads = 1;
  Context context(options);
  const ConfigQuery* product = nullptr;
  const auto queries = autotune::layer_queries(context.state(), {5, 24, 40, DType::f32, false});
  for (const ConfigQuery& query : queries)
    if (query.op == ConfigOp::gemm_int8 && query.words[9] == 0) product = &query;
  ASSERT_NE(product, nullptr);
  gemm_int8::GemmConfig config;
  config.engine = gemm_int8::EngineId::reference;
  const Prober prober(options, SWITCHBACK_BENCH_PROGRAM);
  EXPECT_EQ(prober.why_not(*product, gemm_int8::to_choice(config)), "");
  config.mc = -1;
  const std::string refused = prober.why_not(*product, gemm_int8::to_choice(config));
  EXPECT_NE(refused, "");
  // A program that dies instead of answering.
  EXPECT_EQ(Prober(options, std::string("/bin") + "/false").why_not(*product, {}),
            "in a process of its own it ended with exit code 1");
}

}  // namespace
}  // namespace switchback::bench
