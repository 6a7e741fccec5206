// SPDX-License-Identifier: Apache-2.0
#include "bench/run/record.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "bench/workload/record_file.hpp"
#include "support/generators.hpp"
#include "support/refusal.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

Record example() {
  Record record;
  record.repeat = 10;
  record.shape = case_of_shape(16, 1024, 4096);
  for (std::size_t i = 0; i < record_fields; ++i)
    record.times_ms[i] = 0.1 * static_cast<double>(i + 1);
  return record;
}

std::string refusal_of(const std::string& line) {
  return test::refusal([&] { parse_record(line); });
}

std::string replaced(std::string line, const std::string& from, const std::string& to) {
  const std::size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

TEST(Record, HasThePublishedKeysInTheirOrder) {
  const std::string expected =
      "repeat batch_size dim_out dim_in wm switch standard_fwd standard_gw standard_gx rowwise_fwd "
      "rowwise_bwd global_fwd global_bwd x_quantize_rowwise g_quantize_rowwise w_quantize_rowwise "
      "w_quantize_colwise_transpose w_quantize_global w_quantize_global_transpose cast_x cast_g "
      "cast_w time_standard time_rowwise time_global";
  EXPECT_EQ(fmt::format("{}", fmt::join(record_keys(), " ")), expected);
}

// Every published record is read and written back byte for byte: keys, order, sums and style.
TEST(Record, RewritesThePublishedRecordsByteForByte) {
  const std::string text = read_file(SWITCHBACK_REFERENCE_RECORDS);
  const std::vector<Record> records = parse_records(text, "a100.jsonl");
  EXPECT_EQ(records.size(), 142u);
  std::string again;
  for (const Record& record : records)
    again += to_line(record) + "\n";
  EXPECT_EQ(again, text);
}

TEST(Record, MissingFieldsAndTheirSumsAreNull) {
  Record record = example();
  record.times_ms[index(Field::rowwise_bwd)] = std::nullopt;
  const std::string line = to_line(record);
  EXPECT_NE(line.find("\"rowwise_bwd\": null"), std::string::npos);
  EXPECT_NE(line.find("\"time_rowwise\": null"), std::string::npos);
  EXPECT_EQ(line.find("\"time_standard\": null"), std::string::npos);
  EXPECT_EQ(parse_record(line), record);
}

TEST(Record, NumbersReadBackAsTheSameDouble) {
  EXPECT_EQ(number_text(1), "1.0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(0.0001), "0.0001");
  EXPECT_EQ(number_text(0.00001), "1e-05");
  EXPECT_EQ(number_text(1e16), "1e+16");
  EXPECT_EQ(number_text(0.047907233238220215), "0.047907233238220215");
  test::Random random(9);
  for (int i = 0; i < 20000; ++i) {
    const double value = std::abs(std::bit_cast<double>(random.next()));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::strtod(number_text(value).c_str(), nullptr), value);
  }
}

TEST(Record, RefusesWhatIsNoRecord) {
  const std::string good = to_line(example());
  EXPECT_EQ(refusal_of(good), "accepted");
  EXPECT_EQ(refusal_of(good.substr(0, good.size() - 1)).find("not JSON"), 0u);
  EXPECT_EQ(refusal_of("").find("not JSON"), 0u);
  for (const char* text : {"[]", "3"})
    EXPECT_EQ(refusal_of(text), "not a flat JSON object");
  EXPECT_EQ(refusal_of("{}"), "no key 'repeat'; a record has 25 keys");
  struct Change {
    const char *from, *to, *message;
  };
  const std::vector<Change> changes = {
      {"\"wm\": 4", "\"wm\": [4]", "not a flat JSON object"},
      {"}", ", \"more\": 1}", "a surplus key 'more'; a record has 25 keys"},
      {"\"dim_out\"", "\"dim_in\"", "key 3 is 'dim_in'; it must be 'dim_out'"},
      {"\"repeat\": 10", "\"repeat\": 0",
       "repeat is 0; it must be an integer from 1 to 9007199254740992"},
      {"\"repeat\": 10", "\"repeat\": 1.5",
       "repeat is 1.5; it must be an integer from 1 to 9007199254740992"},
      {"\"switch\": false", "\"switch\": 0", "switch is 0; it must be true or false"},
      {"\"cast_x\": 1.4", "\"cast_x\": -1.4",
       "cast_x is -1.4000000000000001; it must be a time in ms, or null"},
      {"\"standard_fwd\": 0.1", "\"standard_fwd\": 0.2", "time_standard is "},
      {"\"standard_fwd\": 0.1", "\"standard_fwd\": null", "time_standard is "}};
  for (const Change& change : changes)
    EXPECT_EQ(refusal_of(replaced(good, change.from, change.to)).find(change.message), 0u)
        << change.to << " " << refusal_of(replaced(good, change.from, change.to));
}

// The oldest published record: it has 22 keys, without the times of the casts.
constexpr const char* without_casts =
    R"({"repeat": 64, "batch_size": 8192, "dim_out": 4096, "dim_in": 1024, "wm": 4, "switch": false, )"
    R"("standard_fwd": 0.28139352798461914, "standard_gw": 0.2811811864376068, )"
    R"("standard_gx": 0.30258670449256897, "rowwise_fwd": 0.1994594931602478, )"
    R"("rowwise_bwd": 0.16159191727638245, "global_fwd": 0.19502267241477966, )"
    R"("global_bwd": 0.16080215573310852, "x_quantize_rowwise": 0.03306940197944641, )"
    R"("g_quantize_rowwise": 0.08210167288780212, "w_quantize_rowwise": 0.03385916352272034, )"
    R"("w_quantize_colwise_transpose": 0.08635595440864563, )"
    R"("w_quantize_global": 0.09237229824066162, )"
    R"("w_quantize_global_transpose": 0.10007619857788086, "time_standard": 0.8651614189147949, )"
    R"("time_rowwise": 0.8776187896728516, "time_global": 0.944625586271286})";

TEST(Record, OfTheFirstPublicationHasNoCasts) {
  const Record record = parse_record(without_casts, RecordKeys::all_or_without_casts);
  EXPECT_EQ(*record.time(Field::standard_fwd), 0.28139352798461914);
  EXPECT_FALSE(record.time(Field::cast_x));
  EXPECT_EQ(*record.time_global(), 0.944625586271286);
  // Records from which a run is resumed must have all keys.
  EXPECT_EQ(refusal_of(without_casts), "key 20 is 'time_standard'; it must be 'cast_x'");
  const std::string one_cast =
      replaced(without_casts, ", \"time_standard\"", ", \"cast_g\": 1.0, \"time_standard\"");
  EXPECT_THROW(parse_record(one_cast, RecordKeys::all_or_without_casts), Error);
}

TEST(Record, OtherFilesOfThisProgramAreNamed) {
  EXPECT_NE(kind_of_line(R"({"type":"case","case":1})").find("run file"), std::string::npos);
  EXPECT_NE(kind_of_line(R"({"type":"micro","v":1})").find("micro"), std::string::npos);
  EXPECT_NE(kind_of_line(R"({"type":"verify_start"})").find("verify"), std::string::npos);
  EXPECT_EQ(kind_of_line(to_line(example())), "");
  EXPECT_EQ(kind_of_line("no JSON"), "");
}

}  // namespace
}  // namespace switchback::bench
