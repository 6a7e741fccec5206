// SPDX-License-Identifier: Apache-2.0
// Tests of `run`, `verify` and `info` on the emulated device, whose memory this program
// cannot read directly.
#include <gtest/gtest.h>

#include <string>

#include "bench/machine/ceilings.hpp"
#include "bench/machine/machine.hpp"
#include "bench/run/case.hpp"
#include "bench/verify/verify.hpp"
#include "support/device.hpp"

namespace switchback::bench {
namespace {

ContextOptions emulated() {
  ContextOptions options;
  options.device = "emulated:0";
  return options;
}

TEST(BenchOnADevice, RunMeasuresAndChecksEveryField) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Context context(emulated());
    CaseOptions options;
    options.dtype = dtype;
    options.repeat = 2;
    const CaseResult result = run_case(context, case_of_shape(5, 33, 70), options);
    EXPECT_EQ(result.status, CaseStatus::ok) << dtype_name(dtype) << ": " << result.why;
    EXPECT_EQ(result.rounds, 2);
    for (std::size_t i = 0; i < all_fields; ++i) {
      EXPECT_EQ(result.fields[i].status, CaseStatus::ok) << field_table()[i].name;
      EXPECT_EQ(result.fields[i].stats.count, 2) << field_table()[i].name;
    }
    EXPECT_EQ(result.field(Field::standard_fwd).engine, "cublaslt");
    EXPECT_NE(result.field(Field::rowwise_fwd).engine.find("cublaslt"), std::string::npos);
  }
}

TEST(BenchOnADevice, RunReplaysGraphsOnAColdCache) {
  Context context(emulated());
  CaseOptions options;
  options.repeat = 2;
  options.graphs = true;
  options.cold_cache = true;
  const CaseResult result = run_case(context, case_of_shape(3, 16, 20), options);
  EXPECT_EQ(result.status, CaseStatus::ok) << result.why;
  EXPECT_EQ(result.rounds, 2);
}

TEST(BenchOnADevice, Tf32HasABoundOfItsOwn) {
  Context context(emulated());
  CaseOptions options;
  options.repeat = 1;
  options.fields = parse_fields("standard_fwd");
  options.standard_engine = "cublaslt_tf32";
  const CaseResult result = run_case(context, case_of_shape(8, 64, 32), options);
  EXPECT_EQ(result.status, CaseStatus::ok) << result.why;
  EXPECT_EQ(result.field(Field::standard_fwd).engine, "cublaslt_tf32");
}

TEST(BenchOnADevice, VerifyPasses) {
  VerifyOptions options;
  options.context = emulated();
  options.shapes = {{5, 33, 18}};
  const VerifySummary summary = run_verify(options, [](const Check& check) {
    if (check.outcome == Check::Outcome::fail) {
      ADD_FAILURE() << check.op << " " << check.part << " " << check.dtype << " engine "
                    << check.engine << ": " << check.reason;
    }
    EXPECT_EQ(check.isa, "sm_90");
  });
  EXPECT_EQ(summary.failed, 0);
  EXPECT_GT(summary.passed, 100);
}

TEST(BenchOnADevice, CeilingsAndMachineAreTold) {
  Context context(emulated());
  const Ceilings c = measure_ceilings(context, 0.01);
  EXPECT_GT(c.copy_gb_s, 0);
  EXPECT_GT(c.s8_tops, 0);
  EXPECT_GT(c.bf16_tflops, 0);
  EXPECT_GT(c.f32_tflops, 0);
  const nlohmann::ordered_json machine = machine_json(context);
  EXPECT_EQ(machine["device"], "emulated:0");
  EXPECT_EQ(machine["gpu"]["compute_capability"], "9.0");
  EXPECT_FALSE(machine["gpu"]["gpu_name"].get<std::string>().empty());
}

}  // namespace
}  // namespace switchback::bench
