// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/micro.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "bench/cli/cli.hpp"
#include "bench/micro/benches.hpp"
#include "studies/micro/models.hpp"
#include "support/temporary_directory.hpp"
#include "support/tuning.hpp"

namespace switchback::bench {
namespace {

MicroOptions tiny() {
  MicroOptions options;
  options.shapes = {{8, 64, 48}};
  options.min_time_s = 1e-3;
  return options;
}

void expect_measured(const RaceRow& row) {
  SCOPED_TRACE(row.bench + " " + row.subject + " " + row.variant);
  EXPECT_GE(row.subject_ms.count, 3);  // also on a busy machine: fewer samples have no spread
  EXPECT_GT(row.subject_ms.median_ms, 0);
  EXPECT_GT(row.rival_ms.median_ms, 0);
  EXPECT_FALSE(row.rival.empty());
  EXPECT_TRUE(std::isfinite(row.ratio.median));
  EXPECT_GT(row.ratio.median, 0);
  const auto json = nlohmann::ordered_json::parse(to_json(row).dump());
  EXPECT_EQ(json["type"], "micro");
  EXPECT_EQ(json["bench"], row.bench);
  EXPECT_DOUBLE_EQ(json["ratio"].get<double>(), row.ratio.median);
  EXPECT_EQ(json["disturbed"], row.disturbance.in_doubt());
  for (const char* count : {"discarded_rounds", "disturbed_rounds", "preempted_rounds",
                            "loaded_rounds", "slow_clock_rounds"})
    EXPECT_TRUE(json[count].is_number_integer()) << count;
}

TEST(Micro, GemmMeasuresBothSidesAndTheirShareOfTheCeiling) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  std::set<std::string> variants;
  micro_gemm(context, {tiny()}, [&](const RaceRow& row) {
    expect_measured(row);
    variants.insert(row.variant);
    EXPECT_GT(row.gop_s, 0);
    EXPECT_GT(row.share.value().median, 0);
    EXPECT_TRUE(std::isfinite(row.share->median));
    EXPECT_FALSE(row.ceiling.empty());
    EXPECT_EQ(row.output, DType::f32);
    EXPECT_EQ(row.read_share.has_value(), row.variant == "int8");
    if (row.read_share) {
      EXPECT_GT(row.read_share->median, 0);
    }
  });
  EXPECT_EQ(variants, (std::set<std::string>{"int8", "f32"}));
}

TEST(Micro, GemmMeasuresEveryOutputCold) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  GemmOptions options{tiny()};
  options.outputs = {DType::bf16, DType::f32, DType::f16};
  options.cold = true;
  options.cold_bytes = 1 << 20;
  std::map<std::string, std::vector<DType>> outputs;
  micro_gemm(context, options, [&](const RaceRow& row) {
    expect_measured(row);
    if (row.variant == "int8") outputs[row.subject].push_back(row.output.value());
    EXPECT_EQ(to_json(row)["output"], std::string(dtype_name(row.output.value())));
  });
  EXPECT_FALSE(outputs.empty());
  for (const auto& [engine, written] : outputs)
    EXPECT_EQ(written, options.outputs) << engine;
}

// With cold caches every bench alternates between copies of its operands; see measure::Turns.
TEST(Micro, EveryBenchRunsCold) {
  Context context({.device = "cpu", .threads = 1, .isa = {}});
  MicroOptions options = tiny();
  options.cold = true;
  options.cold_bytes = 1 << 18;
  measure::DisturbanceWatch watch(1);
  options.watch = &watch;
  int rows = 0;
  const auto count = [&](const RaceRow& row) {
    expect_measured(row);
    EXPECT_GE(row.disturbance.rounds, row.subject_ms.count);
    ++rows;
  };
  micro_layer(context, options, count);
  micro_weight_gradient(context, options, count);
  micro_activation(context, options, count);
  micro_experts(context, options, count);
  EXPECT_GE(rows, 12);
  EXPECT_GT(watch.total().rounds, rows);
}

TEST(Micro, LayerMeasuresForwardAndStep) {
  Context context({.device = "cpu", .threads = 1, .isa = {}});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MicroOptions options = tiny();
    options.dtype = dtype;
    std::multiset<std::string> subjects;
    micro_layer(context, options, [&](const RaceRow& row) {
      expect_measured(row);
      EXPECT_EQ(row.dtype, dtype);
      subjects.insert(row.subject);
    });
    EXPECT_EQ(subjects.count("forward, W codes cached"), 2u);
    EXPECT_EQ(subjects.count("forward, W quantized every call"), 2u);
    EXPECT_EQ(subjects.count("full step, W new"), 3u);
    EXPECT_EQ(subjects.count("forward, W codes cached, rotation 256"), 0u);
  }
}

TEST(Micro, LayerMeasuresARotationWhereKIsAMultipleOfItsGroup) {
  Context context({.device = "cpu", .threads = 1, .isa = {}});
  MicroOptions options = tiny();
  options.shapes.front() = {3, 512, 16};
  int rows = 0;
  micro_layer(context, options, [&](const RaceRow& row) {
    if (row.subject != "forward, W codes cached, rotation 256") return;
    expect_measured(row);
    EXPECT_EQ(row.rival, "the layer without");
    ++rows;
  });
  EXPECT_EQ(rows, 1);
}

TEST(Micro, ExpertsAreMeasuredAgainstALoopAndABound) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  MicroOptions options = tiny();
  options.shapes.front().batch = 20;
  std::set<std::pair<std::string, std::string>> rows;
  micro_experts(context, options, [&](const RaceRow& row) {
    expect_measured(row);
    rows.emplace(row.variant, row.rival);
  });
  // The shape has 20 tokens: more than 8 experts, fewer than 64.
  const std::set<std::pair<std::string, std::string>> want = {
      {"8 of 8 experts", "loop of products"},
      {"8 of 8 experts", "one product"},
      {"8 of 8 experts", "one product of all weights"},
      {"8 of 8 experts", "one product, then reading"},
      {"15 of 64 experts", "loop of products"},
      {"15 of 64 experts", "reading the weights used"}};
  EXPECT_EQ(rows, want);
}

TEST(Micro, ModelsMeasuresEveryOperationAgainstItsFloor) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MicroOptions options = tiny();
    options.dtype = dtype;
    std::set<std::string> operations;
    micro_models(context, options, [&](const RaceRow& row) {
      expect_measured(row);
      EXPECT_EQ(row.bench, "models");
      EXPECT_EQ(row.dtype, dtype);
      const bool gathers = row.subject == "embedding: forward";
      EXPECT_EQ(row.rival.starts_with("gather"), gathers) << row.rival;
      EXPECT_EQ(row.rival.starts_with("copy") || row.rival == "reading" || gathers,
                row.variant == "memory")
          << row.rival;
      operations.insert(row.subject);
      // An operation's floor is the time for its memory traffic or for its arithmetic. For these
      // operations the machine decides which of the two is longer.
      EXPECT_TRUE(row.variant != "arithmetic" || row.subject.starts_with("attention") ||
                  row.subject.starts_with("gelu") || row.subject.starts_with("swiglu") ||
                  row.subject == "dropout")
          << row.subject;
    });
    EXPECT_EQ(operations.size(), 20u);
  }
  MicroOptions odd = tiny();
  odd.shapes.front().dim_in = 63;
  EXPECT_THROW(micro_models(context, odd, [](const RaceRow&) {}), Error);
}

TEST(Micro, ActivationMeasuresFusedAgainstSeparate) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    MicroOptions options = tiny();
    options.dtype = dtype;
    std::multiset<std::string> subjects;
    micro_activation(context, options, [&](const RaceRow& row) {
      expect_measured(row);
      subjects.insert(row.subject);
      EXPECT_EQ(row.bench, "activation");
      EXPECT_EQ(row.dtype, dtype);
      EXPECT_FALSE(row.rival.empty());
    });
    // Every operation is measured with both forms of GELU. The MLP step is compared with separate
    // operations and with standard layers.
    for (const char* subject : {"forward + quantize", "backward + quantize + sums", "MLP step"})
      EXPECT_EQ(subjects.count(subject), 2u * options.shapes.size()) << subject;
  }
}

TEST(Micro, QuantizeMeasuresEveryOperationAgainstACopy) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  QuantizeOptions options{tiny()};
  options.quantize_bytes = 1 << 18;
  std::set<std::string> subjects;
  micro_quantize(context, options, [&](const RaceRow& row) {
    expect_measured(row);
    subjects.insert(row.subject);
    // A fingerprint writes nothing, so it is compared with reading instead of copying.
    EXPECT_TRUE(row.rival.starts_with(row.subject == "fingerprint" ? "read" : "copy")) << row.rival;
    EXPECT_GT(row.gb_s, 0);
  });
  EXPECT_EQ(subjects.size(), 17u);
}

TEST(Micro, WeightGradientHasItsProductAndTheWhole) {
  Context context({.device = "cpu", .threads = 1, .isa = {}});
  std::set<std::string> variants;
  micro_weight_gradient(context, tiny(), [&](const RaceRow& row) {
    expect_measured(row);
    variants.insert(row.variant);
    EXPECT_GT(row.gop_s, 0);
    // Only the product alone has a share of the machine's arithmetic ceiling.
    EXPECT_EQ(row.share.has_value(), row.variant == "product");
    EXPECT_FALSE(row.rival.empty());
  });
  EXPECT_EQ(variants.count("whole"), 1u);
}

TEST(Micro, CallMeasuresBothLanguagesAgainstPlainLoops) {
  Context context({.device = "cpu", .threads = 1, .isa = {}});
  allocations_so_far = []() noexcept { return std::int64_t{0}; };
  std::set<std::string> rows;
  micro_call(context, tiny(), [&](const CallRow& row) {
    rows.insert(row.what + ", " + row.how);
    EXPECT_GT(row.ns.median, 0);
    EXPECT_EQ(row.allocations, 0.0);
  });
  allocations_so_far = nullptr;
  std::set<std::string> want;
  for (const char* what : {"forward, W codes cached", "training step, W new"})
    for (const char* how : {"C++", "C", "plain loops"})
      want.insert(std::string(what) + ", " + how);
  EXPECT_EQ(rows, want);
}

TEST(Micro, FastestIsOfTheMedian) {
  const std::vector<double> steady = {2, 2, 2};
  const std::vector<double> lucky_once = {1, 3, 3};
  const std::vector<measure::Timed> timed = {{"lucky", lucky_once, measure::summarize(lucky_once)},
                                             {"steady", steady, measure::summarize(steady)}};
  EXPECT_EQ(measure::fastest(timed, 0, 2).name, "steady");
  EXPECT_EQ(measure::fastest(timed, 0, 1).name, "lucky");
}

TEST(Micro, HopelessRivalsAreDropped) {
  const auto nothing = [] {};
  const auto slow = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  const auto kept = measure::without_hopeless({{"fast", nothing}, {"slow", slow}}, 5);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].name, "fast");
  EXPECT_EQ(measure::without_hopeless({{"only", slow}}, 5).size(), 1u);
}

TEST(Micro, ReferenceEngineIsNoRivalUnlessAlone) {
  EXPECT_EQ(fast_engines({{"a", true, ""}, {"b", false, "no"}, {"reference", true, ""}}),
            std::vector<std::string>{"a"});
  EXPECT_EQ(fast_engines({{"b", false, "no"}, {"reference", true, ""}}),
            std::vector<std::string>{"reference"});
}

// Runs switchback-bench with these arguments in this process.
int cli(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "switchback-bench");
  return run_cli(static_cast<int>(arguments.size()), arguments.data());
}

struct Captured {
  int code;
  std::string out;
};
Captured captured(const std::vector<const char*>& arguments) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = cli(arguments);
  ::testing::internal::GetCapturedStderr();
  return {code, ::testing::internal::GetCapturedStdout()};
}

TEST(Commands, VerifyPasses) {
  const Captured c = captured({"verify", "--device", "cpu", "--threads", "2", "--shape", "5,33,17",
                               "--dtype", "bf16", "--data", "normal,nonfinite"});
  EXPECT_EQ(c.code, exit_codes::ok);
  EXPECT_NE(c.out.find("PASSED"), std::string::npos) << c.out;
}

TEST(Commands, VerifyWritesJsonLines) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "switchback_verify_test.jsonl";
  const std::string file = path.string();
  const Captured c = captured(
      {"verify", "--shape", "3,8,4", "--mode", "rowwise", "--json", "--out", file.c_str()});
  EXPECT_EQ(c.code, exit_codes::ok);
  std::ifstream stream(path);
  std::string line;
  std::string all;
  std::vector<std::string> types;
  while (std::getline(stream, line)) {
    const auto json = nlohmann::ordered_json::parse(line);
    types.push_back(json["type"]);
    if (json["type"] == "check") {
      EXPECT_EQ(json["op"], "layer");
      EXPECT_EQ(json["mode"], "rowwise");
    }
    all += line + "\n";
  }
  ASSERT_GT(types.size(), 2u);
  EXPECT_EQ(types.front(), "verify_start");
  EXPECT_EQ(types.back(), "verify_end");
  EXPECT_EQ(c.out, all);
  std::filesystem::remove(path);
}

TEST(Commands, UsageAndDeviceErrorsHaveTheirCodes) {
  const std::vector<std::vector<const char*>> usage = {{"verify", "--shape", "1,2"},
                                                       {"verify", "--dtype", "int8"},
                                                       {"verify", "--mode", "auto"},
                                                       {"verify", "nothing"},
                                                       {"verify", "--data", "nothing"},
                                                       {"verify", "--isa", "nothing"},
                                                       {"verify", "--engine", "nothing"},
                                                       {"verify", "--nothing"},
                                                       {"micro", "nothing"},
                                                       {"micro", "--dtype", "s8"},
                                                       {"micro", "--output", "s32"},
                                                       {"micro", "--min-time", "soon"},
                                                       {"micro", "--only", "no such operation"},
                                                       {"info", "--threads", "-1"}};
  for (const auto& arguments : usage)
    EXPECT_EQ(captured(arguments).code, exit_codes::usage)
        << arguments[0] << " " << arguments[1] << " " << arguments.back();
  EXPECT_EQ(captured({"verify", "--device", "cuda:7"}).code, exit_codes::device);
  EXPECT_EQ(captured({"info", "--device", "cuda:7"}).code, exit_codes::device);
  EXPECT_EQ(captured({"micro", "--device", "cuda:7"}).code, exit_codes::device);
  EXPECT_EQ(captured({"verify", "--shape", "1,1,1", "--out", "no/such/directory/file"}).code,
            exit_codes::failed);
}

TEST(Commands, InfoIsOneJsonDocument) {
  const Captured c = captured({"info", "--json", "--no-ceilings"});
  EXPECT_EQ(c.code, exit_codes::ok);
  const auto json = nlohmann::ordered_json::parse(c.out);
  EXPECT_EQ(json["machine"]["device"], "cpu");
  EXPECT_FALSE(json["engines"]["int8 products"].empty());
  EXPECT_FALSE(json["engines"]["floating point products"].empty());
  EXPECT_FALSE(json["engines"]["quantize"].empty());
  for (const auto& list : json["engines"])
    for (const auto& engine : list)
      EXPECT_NE(engine["available"].get<bool>(), !engine["reason"].get<std::string>().empty());
  EXPECT_FALSE(json.contains("ceilings"));
  const Captured text = captured({"info", "--no-ceilings"});
  EXPECT_EQ(text.code, exit_codes::ok);
  EXPECT_NE(text.out.find("reference"), std::string::npos);
}

TEST(Commands, MicroLayerTunesModeAutoIfAsked) {
  const test::Tuning tuning;
  const test::TemporaryDirectory cache;
  const std::string directory = cache.path().string();
  const auto rows_of_auto = [&](std::vector<const char*> more) {
    std::vector<const char*> arguments = {"micro",      "layer", "--shape",   "4,32,16", "--json",
                                          "--min-time", "1ms",   "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Captured c = captured(arguments);
    EXPECT_EQ(c.code, exit_codes::ok);
    std::istringstream lines(c.out);
    std::string line;
    std::vector<std::string> subjects;
    while (std::getline(lines, line)) {
      const auto json = nlohmann::ordered_json::parse(line);
      if (json["type"] != "micro" || !json["variant"].get<std::string>().starts_with("auto: "))
        continue;
      EXPECT_EQ(json["rival"]["name"], "a layer in mode standard");
      EXPECT_GT(json["ratio"].get<double>(), 0.0);
      subjects.push_back(json["subject"]["name"]);
    }
    return subjects;
  };
  EXPECT_TRUE(rows_of_auto({}).empty());
  EXPECT_EQ(rows_of_auto({"--tune", "0.2", "--cache", directory.c_str()}),
            (std::vector<std::string>{"full step, W new", "full step, W new, dW in int8"}));
  EXPECT_NE(captured({"micro", "layer", "--shape", "4,32,16", "--tune", "-1"}).code,
            exit_codes::ok);
}

TEST(Commands, MicroWritesRows) {
  const Captured c = captured({"micro", "gemm", "layer", "--shape", "4,32,16", "--min-time", "1ms",
                               "--threads", "1", "--json"});
  EXPECT_EQ(c.code, exit_codes::ok);
  std::istringstream lines(c.out);
  std::string line;
  std::set<std::string> types;
  while (std::getline(lines, line)) {
    const auto json = nlohmann::ordered_json::parse(line);
    types.insert(json["type"]);
    if (json["type"] == "micro") {
      EXPECT_EQ(json["dim_in"], 32);
      EXPECT_NE(json["bench"], "quantize");
    }
  }
  EXPECT_EQ(types, (std::set<std::string>{"micro_start", "micro", "micro_end"}));
}

TEST(Commands, MicroMeasuresTheOperationsThatAreAskedFor) {
  const Captured c =
      captured({"micro", "--only", "rope", "--only", "fingerprint", "--shape", "4,32,16", "--size",
                "65536", "--min-time", "1ms", "--threads", "1", "--json"});
  EXPECT_EQ(c.code, exit_codes::ok);
  std::istringstream lines(c.out);
  std::string line;
  std::set<std::string> names;
  while (std::getline(lines, line)) {
    const auto json = nlohmann::ordered_json::parse(line);
    if (json["type"] == "micro") names.insert(json["subject"]["name"]);
  }
  EXPECT_EQ(names, (std::set<std::string>{"rope: forward", "rope: backward", "fingerprint"}));
}

}  // namespace
}  // namespace switchback::bench
