// SPDX-License-Identifier: Apache-2.0
// Tests of the benches of `micro` on the CPU and on the emulated device, whose memory this program
// cannot read directly, and of the commands `verify`, `info` and `micro`.
#include "bench/micro/micro.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "bench/commands.hpp"
#include "bench/micro/benches.hpp"
#include "studies/micro/models.hpp"
#include "support/tuning.hpp"

namespace switchback::bench {
namespace {

ContextOptions on(const std::string& device) {
  ContextOptions options;
  options.device = device;
  options.threads = 2;
  return options;
}

/// Options for one small shape. The emulated device is slow, so it gets a smaller one.
MicroOptions tiny(const std::string& device = "cpu") {
  MicroOptions options;
  options.shapes = {device == "cpu" ? MicroShape{8, 64, 48} : MicroShape{8, 32, 16}};
  options.min_time_s = device == "cpu" ? 1e-3 : 1e-6;
  options.dtype = DType::bf16;
  return options;
}

/// The rows of a bench. Each must be a measurement of a subject and its rival.
template <class Bench, class Options>
std::vector<RaceRow> rows_of(Bench bench, const std::string& device, const Options& options) {
  Context context(on(device));
  std::vector<RaceRow> rows;
  bench(context, options, [&](const RaceRow& row) {
    SCOPED_TRACE(device + " " + row.bench + " " + row.subject + " " + row.variant);
    EXPECT_GE(row.subject_ms.count, 3);  // also on a busy machine: fewer samples have no spread
    EXPECT_GT(row.subject_ms.median_ms, 0);
    EXPECT_GT(row.rival_ms.median_ms, 0);
    EXPECT_FALSE(row.rival.empty());
    EXPECT_TRUE(std::isfinite(row.ratio.median));
    EXPECT_GT(row.ratio.median, 0);
    const auto json = nlohmann::json::parse(to_json(row).dump());
    EXPECT_EQ(json["type"], "micro");
    EXPECT_EQ(json["bench"], row.bench);
    EXPECT_DOUBLE_EQ(json["ratio"].get<double>(), row.ratio.median);
    EXPECT_EQ(json["disturbed"], row.disturbance.in_doubt());
    for (const char* count : {"discarded_rounds", "disturbed_rounds", "preempted_rounds",
                              "loaded_rounds", "slow_clock_rounds"})
      EXPECT_TRUE(json[count].is_number_integer()) << count;
    rows.push_back(row);
  });
  return rows;
}

void weight_gradient(Context& context, const MicroOptions& options, const RaceSink& sink) {
  micro_weight_gradient(context, options, sink);
}

/// The subjects of rows with the type that tiny() asks for.
std::multiset<std::string> subjects_of(const std::vector<RaceRow>& rows) {
  std::multiset<std::string> subjects;
  for (const RaceRow& row : rows) {
    EXPECT_EQ(row.dtype, DType::bf16) << row.subject;
    subjects.insert(row.subject);
  }
  return subjects;
}

/// The number of different subjects.
std::size_t kinds_of(const std::vector<RaceRow>& rows) {
  std::set<std::string> subjects;
  for (const RaceRow& row : rows)
    subjects.insert(row.subject);
  return subjects.size();
}

// Only a CPU has a ceiling.
TEST(Micro, GemmMeasuresEveryOutputOfBothSidesAndTheirShareOfTheCeiling) {
  for (const std::string device : {"cpu", "emulated:0"})
    for (const bool cold : {false, true}) {
      GemmOptions options{tiny(device)};
      options.outputs = {DType::bf16, DType::f32, DType::f16};
      options.cold = cold;
      options.cold_bytes = 1 << 20;
      std::map<std::string, std::vector<DType>> outputs;  // of each int8 engine
      std::set<std::string> variants;
      for (const RaceRow& row : rows_of(micro_gemm, device, options)) {
        variants.insert(row.variant);
        if (row.variant == "int8") outputs[row.subject].push_back(row.output.value());
        EXPECT_GT(row.gop_s, 0);
        EXPECT_EQ(to_json(row)["output"], std::string(dtype_name(row.output.value())));
        const bool has_ceiling = device == "cpu";
        EXPECT_EQ(row.ceiling.empty(), !has_ceiling);
        EXPECT_EQ(row.share.has_value(), has_ceiling);
        EXPECT_EQ(row.read_share.has_value(), has_ceiling && row.variant == "int8");
        for (const std::optional<measure::Middle>& share : {row.share, row.read_share})
          EXPECT_GT(share.value_or(measure::Middle{1, 0}).median, 0);
      }
      EXPECT_EQ(variants, (std::set<std::string>{"int8", "f32"}));
      for (const auto& [engine, written] : outputs)
        EXPECT_EQ(written, options.outputs) << engine;
    }
}

// With cold caches every bench alternates between copies of its operands; see measure::Turns.
TEST(Micro, EveryBenchRunsCold) {
  MicroOptions options = tiny();
  options.cold = true;
  options.cold_bytes = 1 << 18;
  measure::DisturbanceWatch watch(1);
  options.watch = &watch;
  std::size_t all = 0;
  for (const auto bench : {micro_layer, micro_activation, micro_experts}) {
    const std::vector<RaceRow> rows = rows_of(bench, "cpu", options);
    for (const RaceRow& row : rows)
      EXPECT_GE(row.disturbance.rounds, row.subject_ms.count);
    all += rows.size();
  }
  all += rows_of(weight_gradient, "cpu", options).size();
  EXPECT_GE(all, 12u);
  EXPECT_GT(watch.total().rounds, static_cast<std::int64_t>(all));
}

TEST(Micro, LayerMeasuresForwardAndStep) {
  for (const std::string device : {"cpu", "emulated:0"}) {
    const auto subjects = subjects_of(rows_of(micro_layer, device, tiny(device)));
    EXPECT_EQ(subjects.count("forward, W codes cached"), 2u);
    EXPECT_EQ(subjects.count("forward, W quantized every call"), 2u);
    EXPECT_EQ(subjects.count("full step, W new"), 3u);
    EXPECT_EQ(subjects.count("forward, W codes cached, rotation 256"), 0u);
  }
}

TEST(Micro, LayerMeasuresARotationWhereKIsAMultipleOfItsGroup) {
  MicroOptions options = tiny();
  options.dtype = DType::f32;
  options.shapes.front() = {3, 512, 16};
  int rows = 0;
  for (const RaceRow& row : rows_of(micro_layer, "cpu", options)) {
    if (row.subject != "forward, W codes cached, rotation 256") continue;
    EXPECT_EQ(row.rival, "the layer without");
    ++rows;
  }
  EXPECT_EQ(rows, 1);
}

TEST(Micro, ExpertsAreMeasuredAgainstALoopAndABound) {
  MicroOptions options = tiny();
  options.shapes.front().batch = 20;
  std::set<std::pair<std::string, std::string>> rows;
  for (const RaceRow& row : rows_of(micro_experts, "cpu", options))
    rows.emplace(row.variant, row.rival);
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
  const std::vector<RaceRow> rows = rows_of(micro_models, "cpu", tiny());
  EXPECT_EQ(kinds_of(rows), 20u);
  for (const RaceRow& row : rows) {
    EXPECT_EQ(row.bench, "models");
    EXPECT_EQ(row.dtype, DType::bf16);
    const bool gathers = row.subject == "embedding: forward";
    EXPECT_EQ(row.rival.starts_with("gather"), gathers) << row.rival;
    EXPECT_EQ(row.rival.starts_with("copy") || row.rival == "reading" || gathers,
              row.variant == "memory")
        << row.rival;
    // An operation's floor is the time for its memory traffic or for its arithmetic. For these
    // operations the machine decides which of the two is longer.
    EXPECT_TRUE(row.variant != "arithmetic" || row.subject.starts_with("attention") ||
                row.subject.starts_with("gelu") || row.subject.starts_with("swiglu") ||
                row.subject == "dropout")
        << row.subject;
  }
  MicroOptions options = tiny();
  options.shapes = {{1, 4, 4}};
  const std::vector<RaceRow> of_device = rows_of(micro_models, "emulated:0", options);
  EXPECT_EQ(kinds_of(of_device), 20u);
  for (const RaceRow& row : of_device)
    EXPECT_TRUE(row.variant != "memory" || row.rival == "copy") << row.subject;
  options.shapes.front().dim_in = 63;
  EXPECT_THROW(rows_of(micro_models, "cpu", options), Error);
}

TEST(Micro, ActivationMeasuresFusedAgainstSeparate) {
  for (const std::string device : {"cpu", "emulated:0"}) {
    const std::vector<RaceRow> rows = rows_of(micro_activation, device, tiny(device));
    EXPECT_EQ(rows.front().bench, "activation");
    // Every operation is measured with both forms of GELU. The MLP step is compared with separate
    // operations and with standard layers.
    for (const char* subject : {"forward + quantize", "backward + quantize + sums", "MLP step"})
      EXPECT_EQ(subjects_of(rows).count(subject), 2u) << subject;
  }
}

TEST(Micro, QuantizeMeasuresEveryOperationAgainstACopy) {
  QuantizeOptions options{tiny()};
  options.quantize_bytes = 1 << 18;
  const std::vector<RaceRow> rows = rows_of(micro_quantize, "cpu", options);
  EXPECT_EQ(kinds_of(rows), 17u);
  for (const RaceRow& row : rows) {
    // A fingerprint writes nothing, so it is compared with reading instead of copying.
    EXPECT_TRUE(row.rival.starts_with(row.subject == "fingerprint" ? "read" : "copy")) << row.rival;
    EXPECT_GT(row.gb_s, 0);
  }
  QuantizeOptions on_device{tiny("emulated:0")};
  on_device.quantize_bytes = 1 << 15;
  const std::vector<RaceRow> of_device = rows_of(micro_quantize, "emulated:0", on_device);
  EXPECT_EQ(kinds_of(of_device), 16u);  // all but the fingerprint, which only the CPU has
  for (const RaceRow& row : of_device)
    EXPECT_EQ(row.rival, "copy") << row.subject;
}

TEST(Micro, WeightGradientHasItsProductAndTheWhole) {
  std::set<std::string> variants;
  for (const RaceRow& row : rows_of(weight_gradient, "cpu", tiny())) {
    variants.insert(row.variant);
    EXPECT_GT(row.gop_s, 0);
    // Only the product alone has a share of the machine's arithmetic ceiling.
    EXPECT_EQ(row.share.has_value(), row.variant == "product");
  }
  EXPECT_EQ(variants.count("whole"), 1u);
}

// On the CPU, calls are also compared with plain loops, and their allocations are counted.
TEST(Micro, CallMeasuresBothLanguagesAgainstPlainLoops) {
  for (const std::string device : {"cpu", "emulated:0"}) {
    Context context(on(device));
    allocations_so_far = []() noexcept { return std::int64_t{0}; };
    std::set<std::string> rows;
    micro_call(context, tiny(device), [&](const CallRow& row) {
      rows.insert(row.what + ", " + row.how);
      EXPECT_GT(row.ns.median, 0);
      EXPECT_EQ(row.allocations, 0.0);
    });
    allocations_so_far = nullptr;
    std::set<std::string> want;
    for (const char* what : {"forward, W codes cached", "training step, W new"})
      for (const std::string how : {"C++", "C", "plain loops"})
        if (device == "cpu" || how != "plain loops") want.insert(what + (", " + how));
    EXPECT_EQ(rows, want);
  }
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

/// The lines of JSON that the command prints.
std::vector<nlohmann::json> lines_of(const std::vector<std::string>& arguments) {
  const Result result = run_here(arguments);
  EXPECT_EQ(result.code, exit_codes::ok) << result.err;
  return json_lines(result.out);
}

TEST(Commands, VerifyPasses) {
  const Result result = run_here({"verify", "--device", "cpu", "--threads", "2", "--shape",
                                  "5,33,17", "--dtype", "bf16", "--data", "normal,nonfinite"});
  EXPECT_EQ(result.code, exit_codes::ok);
  expect_part(result.out, "PASSED");
}

TEST(Commands, VerifyWritesJsonLines) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "verify.jsonl";
  const auto lines =
      lines_of({"verify", "--shape", "3,8,4", "--mode", "rowwise", "--json", "--out", file});
  ASSERT_GT(lines.size(), 2u);
  EXPECT_EQ(lines.front()["type"], "verify_start");
  EXPECT_EQ(lines.back()["type"], "verify_end");
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["type"], "check");
    EXPECT_EQ(lines[i]["op"], "layer");
    EXPECT_EQ(lines[i]["mode"], "rowwise");
  }
  EXPECT_EQ(json_lines(read_file(file)), lines);
}

TEST(Commands, InfoIsOneJsonDocument) {
  const Result result = run_here({"info", "--json", "--no-ceilings"});
  EXPECT_EQ(result.code, exit_codes::ok);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["machine"]["device"], "cpu");
  for (const char* operations : {"int8 products", "floating point products", "quantize"})
    EXPECT_FALSE(json["engines"][operations].empty()) << operations;
  for (const auto& list : json["engines"])
    for (const auto& engine : list)
      EXPECT_NE(engine["available"].get<bool>(), !engine["reason"].get<std::string>().empty());
  EXPECT_FALSE(json.contains("ceilings"));
  expect_part(run_here({"info", "--no-ceilings"}).out, "reference");
}

TEST(Commands, MicroLayerTunesModeAutoIfAsked) {
  const test::Tuning tuning;
  const test::TemporaryDirectory cache;
  std::vector<std::string> subjects;
  for (const auto& line :
       lines_of({"micro", "layer", "--shape", "4,32,16", "--json", "--min-time", "1ms", "--threads",
                 "1", "--tune", "0.2", "--cache", cache.path()})) {
    if (line["type"] != "micro" || !line["variant"].get<std::string>().starts_with("auto: "))
      continue;
    EXPECT_EQ(line["rival"]["name"], "a layer in mode standard");
    EXPECT_GT(line["ratio"].get<double>(), 0.0);
    subjects.push_back(line["subject"]["name"]);
  }
  EXPECT_EQ(subjects,
            (std::vector<std::string>{"full step, W new", "full step, W new, dW in int8"}));
}

TEST(Commands, MicroMeasuresTheOperationsThatAreAskedFor) {
  std::set<std::string> types, names;
  for (const auto& line :
       lines_of({"micro", "--only", "rope", "--only", "fingerprint", "--shape", "4,32,16", "--size",
                 "65536", "--min-time", "1ms", "--threads", "1", "--json"})) {
    types.insert(line["type"]);
    if (line["type"] == "micro") names.insert(line["subject"]["name"]);
  }
  EXPECT_EQ(types, (std::set<std::string>{"micro_start", "micro", "micro_end"}));
  EXPECT_EQ(names, (std::set<std::string>{"rope: forward", "rope: backward", "fingerprint"}));
}

}  // namespace
}  // namespace switchback::bench
