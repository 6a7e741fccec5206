// SPDX-License-Identifier: Apache-2.0
// Tests of `run`, `verify`, `micro` and `info` on the emulated device, whose memory this program
// cannot read directly.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "bench/machine/ceilings.hpp"
#include "bench/machine/machine.hpp"
#include "bench/micro/benches.hpp"
#include "bench/run/case.hpp"
#include "bench/verify/verify.hpp"
#include "studies/micro/models.hpp"
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

MicroOptions tiny() {
  MicroOptions options;
  options.shapes = {{8, 32, 16}};
  options.min_time_s = 1e-6;
  return options;
}

void expect_raced(const RaceRow& row) {
  EXPECT_GE(row.subject_ms.count, 3) << row.subject;
  EXPECT_GT(row.subject_ms.median_ms, 0) << row.subject;
  EXPECT_FALSE(row.rival.empty()) << row.subject;
  EXPECT_GT(row.ratio.median, 0) << row.subject;
}

TEST(BenchOnADevice, MicroGemmMeasuresEveryEngineThatTakesTheProduct) {
  Context context(emulated());
  for (const bool cold : {false, true}) {
    GemmOptions options{tiny()};
    options.outputs = {DType::f32, DType::bf16};
    options.cold = cold;
    std::set<std::string> variants;
    micro_gemm(context, options, [&](const RaceRow& row) {
      expect_raced(row);
      variants.insert(row.variant);
      EXPECT_GT(row.gop_s, 0);
      EXPECT_TRUE(row.ceiling.empty());
      EXPECT_FALSE(row.read_share.has_value());
      EXPECT_EQ(to_json(row)["share_of_ceiling"], nullptr);
    });
    EXPECT_EQ(variants, (std::set<std::string>{"int8", "f32"}));
  }
}

TEST(BenchOnADevice, MicroLayerAndActivationMeasureAllTheirRows) {
  Context context(emulated());
  std::multiset<std::string> subjects;
  micro_layer(context, tiny(), [&](const RaceRow& row) {
    expect_raced(row);
    subjects.insert(row.subject);
  });
  micro_activation(context, tiny(), [&](const RaceRow& row) {
    expect_raced(row);
    subjects.insert(row.subject);
  });
  for (const char* subject : {"forward, W codes cached", "forward, W quantized every call",
                              "forward + quantize", "backward + quantize + sums", "MLP step"})
    EXPECT_EQ(subjects.count(subject), 2u) << subject;
  EXPECT_EQ(subjects.count("full step, W new"), 3u);
}

TEST(BenchOnADevice, MicroQuantizeMeasuresEveryOperationAgainstTheDevicesCopy) {
  Context context(emulated());
  QuantizeOptions options{tiny()};
  options.quantize_bytes = 1 << 15;
  options.dtype = DType::bf16;
  std::set<std::string> subjects;
  micro_quantize(context, options, [&](const RaceRow& row) {
    expect_raced(row);
    EXPECT_EQ(row.rival, "copy");
    EXPECT_GT(row.gb_s, 0);
    subjects.insert(row.subject);
  });
  EXPECT_EQ(subjects.size(), 16u);  // all but the fingerprint, which only the CPU has
}

TEST(BenchOnADevice, MicroModelsMeasuresEveryOperationAgainstTheDevice) {
  Context context(emulated());
  MicroOptions options = tiny();
  options.shapes = {{1, 4, 4}};
  options.dtype = DType::bf16;
  std::set<std::string> subjects;
  micro_models(context, options, [&](const RaceRow& row) {
    expect_raced(row);
    if (row.variant == "memory") {
      EXPECT_EQ(row.rival, "copy");
    }
    subjects.insert(row.subject);
  });
  EXPECT_EQ(subjects.size(), 20u);
}

TEST(BenchOnADevice, MicroCallMeasuresBothLanguages) {
  Context context(emulated());
  std::multiset<std::string> languages;
  micro_call(context, tiny(), [&](const CallRow& row) {
    EXPECT_GT(row.ns.median, 0);
    languages.insert(row.how);
  });
  EXPECT_EQ(languages, (std::multiset<std::string>{"C", "C", "C++", "C++"}));
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
