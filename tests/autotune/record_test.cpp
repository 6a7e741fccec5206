// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/record.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include "autotune/records.hpp"
#include "autotune/store/sha256.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {
namespace {

using test::fields_of;
using test::record_of;
using test::replaced;
using test::winner_of;
using test::with_crc;

Record read(const std::string& line) {
  std::string why;
  const std::optional<Record> record = from_line(line, why);
  EXPECT_TRUE(record.has_value()) << why << "\n" << line;
  return record.value_or(Record{});
}

std::string why_not(const std::string& line) {
  std::string why;
  EXPECT_FALSE(from_line(line, why).has_value()) << line;
  return why;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

TEST(Record, IsWrittenInTheFixedOrder) {
  Record record = winner_of(4096);
  record.candidate.algo_hex = "00ff";
  const std::string sha = to_hex(sha256(record.key.json));
  EXPECT_EQ(record.key.sha, sha);
  EXPECT_EQ(
      to_line(record),
      with_crc(R"({"v":1,"type":"winner","key":)" + record.key.json + R"(,"key_sha":")" + sha +
               R"(","env":{"kernels":"7","cublaslt":"","onednn":"2.6.3","openblas":"",)"
               R"("driver":"","product":"AMD EPYC 9R45"},"candidate":{"engine":)"
               R"("avx512_vnni","attributes":{"mc":96,"nc":512},"algo_hex":"00ff"},)"
               R"("ok":true,"stats":{"n":20,"min_ms":0.1,"p20_ms":0.11,"median_ms":0.125,)"
               R"("p80_ms":0.13,"mad_ms":0.005,"max_ms":0.5},"default_median_ms":0.25,)"
               R"("effort":"normal","budget_hit":false,"time":"2026-11-21T17:36:23Z",)"
               R"("tool":"0.1.0")"));
}

TEST(Record, GoesThereAndBack) {
  for (const RecordType type :
       {RecordType::sample, RecordType::winner, RecordType::fail, RecordType::tombstone})
    for (const Effort effort : {Effort::cut, Effort::quick, Effort::normal, Effort::thorough})
      for (const bool hit : {false, true}) {
        Record record = record_of(type, 5, effort);
        record.budget_hit = hit;
        const std::string line = to_line(record);
        EXPECT_TRUE(crc_matches(line));
        EXPECT_EQ(read(line), record) << line;
        EXPECT_EQ(read(line).candidate.algo_hex, record.candidate.algo_hex);
      }
}

TEST(Record, SaysHowManyRoundsWereDisturbed) {
  Record record = winner_of(16);
  EXPECT_EQ(to_line(record).find("_rounds"), std::string::npos);
  record.discarded_rounds = 3;
  record.disturbed_rounds = 1;
  const std::string line = to_line(record);
  EXPECT_TRUE(contains(line, R"("discarded_rounds":3,"disturbed_rounds":1,"crc32")")) << line;
  EXPECT_EQ(read(line), record);
  record.timed_rounds = 24;
  EXPECT_TRUE(contains(to_line(record), R"("disturbed_rounds":1,"timed_rounds":24,"crc32")"));
  EXPECT_EQ(read(to_line(record)), record);
}

TEST(Record, IsInDoubtIfMoreThanAQuarterOfTheRoundsThatRemainWereDisturbed) {
  Record record = winner_of(16);
  const auto doubt = [&](std::int64_t timed, std::int64_t discarded, std::int64_t disturbed) {
    record.timed_rounds = timed;
    record.discarded_rounds = discarded;
    record.disturbed_rounds = disturbed;
    return in_doubt(record);
  };
  EXPECT_FALSE(doubt(0, 0, 0));
  EXPECT_FALSE(doubt(20, 20, 0));
  EXPECT_FALSE(doubt(20, 4, 4));
  EXPECT_TRUE(doubt(20, 4, 5));
  EXPECT_TRUE(doubt(20, 0, 20));
  // Older lines do not say how many were timed: those of the winner's own times are known.
  ASSERT_EQ(record.stats.count, 20);
  EXPECT_FALSE(doubt(0, 9, 5));
  EXPECT_TRUE(doubt(0, 9, 6));
}

TEST(Record, KeepsEveryTextAsItIs) {
  Record record = record_of(RecordType::fail, 1);
  for (const std::string& text :
       {std::string("\"quoted\" \\ / \b\f\n\r\t"), std::string("µs — 速い 🚀 \u2028"),
        std::string("nul \0 inside", 12), std::string("\",\"crc32\":\"00000000\"}"),
        std::string("},\"key_sha\":\"x\""), std::string(60, '{'), std::string(60, ']')}) {
    record.why = text;
    record.env.product = text;
    record.env.tool = text;
    record.candidate.engine = text;
    record.candidate.attributes = {{text, 1}, {"z", 2}, {"a", 3}};
    record.candidate.algo_hex = text;
    record.time = text;
    const std::string line = to_line(record);
    EXPECT_FALSE(contains(line, "\n"));
    EXPECT_EQ(read(line), record) << line;
    EXPECT_EQ(read(line).candidate.algo_hex, text);
  }
  // Not UTF-8: JSON cannot say it, and a record is worth more than a message's odd byte.
  record.why = "caf\xe9!";
  EXPECT_EQ(read(to_line(record)).why, "caf\uFFFD!");
}

TEST(Record, TakesKeysThatLookLikeOtherFields) {
  for (const std::string& json :
       {std::string("{}"), std::string(R"({"a":"}","b":"\"","c":"\\"})"),
        std::string(R"({"key_sha":"0","type":"fail","v":2})"),
        std::string(R"({"a":{"b":[{"c":1},{}]},"k":{},"key_sha":"\",\"key_sha\":\""})"),
        std::string(R"({"name":"µ\u00b5"})")}) {
    Record record = winner_of(1);
    record.key = make_key(json);
    EXPECT_EQ(read(to_line(record)).key.json, json);
  }
}

TEST(Record, KeepsEveryNumberToTheBit) {
  using Double = std::numeric_limits<double>;
  Record record = winner_of(1);
  for (const double value :
       {0.0, -0.0, 1.0, 0.1, 1.0 / 3, Double::max(), Double::lowest(), Double::min(),
        Double::denorm_min(), Double::epsilon(), 9007199254740993.0, 123456789012345678.0, 1e22,
        1e23, 18446744073709551616.0, std::nextafter(1.0, 2.0)}) {
    record.stats.median_ms = value;
    record.default_median_ms = value;
    const Record back = read(to_line(record));
    EXPECT_EQ(back, record) << value;
    EXPECT_EQ(std::signbit(back.stats.median_ms), std::signbit(value)) << value;
  }
  using Integer = std::numeric_limits<std::int64_t>;
  for (const std::int64_t value : {Integer::min(), Integer::max(), std::int64_t{0}}) {
    record.stats.count = value;
    record.candidate.attributes = {{"x", value}};
    EXPECT_EQ(read(to_line(record)), record) << value;
  }
}

TEST(Record, KeepsTheOrderOfAttributes) {
  Record record = winner_of(1);
  record.candidate.attributes = {{"z", 1}, {"a", -2}, {"m", 3}};
  EXPECT_EQ(read(to_line(record)).candidate.attributes, record.candidate.attributes);
  EXPECT_EQ(describe(record.candidate), "avx512_vnni z=1 a=-2 m=3");
  EXPECT_EQ(describe(CandidateText{"naive", {}, "ff"}), "naive");
}

void expect_refused(const Record& record, const std::string& part) {
  try {
    (void)to_line(record);
    ADD_FAILURE() << "written although " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_TRUE(contains(error.what(), part)) << error.what();
  }
}

TEST(Record, IsRefusedWhereNoLineCanSayIt) {
  using Double = std::numeric_limits<double>;
  for (const double bad : {Double::quiet_NaN(), Double::infinity(), -Double::infinity()}) {
    for (double measure::Stats::*member :
         {&measure::Stats::min_ms, &measure::Stats::p20_ms, &measure::Stats::median_ms,
          &measure::Stats::p80_ms, &measure::Stats::max_ms, &measure::Stats::mad_ms}) {
      Record record = winner_of(1);
      record.stats.*member = bad;
      expect_refused(record, "a time must be finite");
    }
    Record record = winner_of(1);
    record.default_median_ms = bad;
    expect_refused(record, "record: default_median_ms = ");
  }
  for (const char* key : {"", "1", "[]", "{", "{\"a\":1}x", "{\"a\":\n1}", "{\"a\":\"\xff\"}"}) {
    Record record = winner_of(1);
    record.key = make_key(key);
    expect_refused(record, "it must be a JSON object on one line");
  }
  Record record = winner_of(1);
  record.key.json = test::key_of(2).json;
  expect_refused(record, "it must be the SHA-256 of the key");
  record = winner_of(1);
  record.candidate.attributes = {{"mc", 1}, {"nc", 2}, {"mc", 3}};
  expect_refused(record, "attribute 'mc' is there twice");
  record = winner_of(1);
  record.candidate.algo_hex = std::string(max_line_bytes, '0');
  expect_refused(record, "a line has at most");
}

TEST(Record, IgnoresFieldsItDoesNotKnow) {
  const Record record = winner_of(1);
  std::string fields =
      replaced(fields_of(record), R"("env":{)", R"("new":{"v":[1,{}]},"env":{"x":1,)");
  fields = replaced(fields, R"("stats":{)", R"("stats":{"p99_ms":null,)");
  EXPECT_EQ(read(with_crc(fields + R"(,"later":[1,2,"}"])")), record);
}

// As another program might write it back: sorted, with spaces.
TEST(Record, IsReadInAnyFormThatEndsWithItsCrc) {
  Record record = winner_of(1);
  record.key = make_key(R"({"k":512,"m":1,"name":"µ"})");
  const std::string fields =
      R"( { "budget_hit" : false, "candidate": {"algo_hex": "", "attributes":)"
      R"( {"mc": 96, "nc": 512}, "engine": "avx512_vnni"}, "default_median_ms": 2.5e-1,)"
      R"( "effort": "normal", "env": {"cublaslt": "", "driver": "", "kernels": "7",)"
      R"( "onednn": "2.6.3", "openblas": "", "product": "AMD EPYC 9R45"},)"
      R"( "key": {"m": 1, "name": "\u00b5", "k": 512}, "key_sha": ")" +
      record.key.sha +
      R"(", "ok": true, "stats": {"mad_ms": 0.005, "max_ms": 0.5, "median_ms": 0.125,)"
      R"( "min_ms": 0.1, "n": 20, "p20_ms": 0.11, "p80_ms": 0.13}, "time":)"
      R"( "2026-11-21T17:36:23Z", "tool": "0.1.0", "type": "winner", "v": 1)";
  for (const auto& [covered, colon, end] :
       {std::tuple(fields, ":", "}"), std::tuple(fields, ": ", " }"),
        std::tuple(fields + " ", "\t: ", "}\r")}) {
    const std::string line =
        covered + fmt::format(", \"crc32\"{}\"{:08x}\"{}", colon, crc32(covered), end);
    EXPECT_TRUE(crc_matches(line)) << line;
    EXPECT_EQ(read(line), record);
    EXPECT_FALSE(crc_matches(replaced(line, "96", "97")));
  }
  // Not the last field: nobody can tell how much of the line it is the CRC of.
  EXPECT_EQ(why_not(with_crc(fields).substr(0, with_crc(fields).size() - 1) + R"(,"x":1})"),
            "it has no CRC");
}

TEST(Record, SaysWhatIsWrongWithALine) {
  const Record record = winner_of(1);
  const std::string fields = fields_of(record);
  EXPECT_EQ(why_not(""), "it is no record in JSON");
  EXPECT_EQ(why_not("# a comment"), "it is no record in JSON");
  EXPECT_EQ(why_not(to_line(record).substr(0, 100)), "it is no record in JSON");
  EXPECT_EQ(why_not("[1]"), "it is no record in JSON");
  EXPECT_EQ(why_not(with_crc("{\"v\":1,,")), "it is no record in JSON");
  EXPECT_EQ(why_not(with_crc("{\"a\":" + std::string(500'000, '[') + std::string(500'000, ']'))),
            "it is no record in JSON");
  EXPECT_EQ(why_not(fields + "}"), "it has no CRC");
  EXPECT_EQ(why_not(fields + R"(,"crc32":"00000000"})"), "the CRC does not match");
  EXPECT_EQ(why_not(std::string(max_line_bytes + 1, ' ')),
            "it has 1048577 bytes; a line has at most 1048576");
  const auto changed = [&](std::string_view what, std::string_view with) {
    EXPECT_TRUE(contains(fields, what)) << what;
    return why_not(with_crc(replaced(fields, what, with)));
  };
  EXPECT_EQ(changed(R"("v":1)", R"("v":2)"), "schema version 2; this library reads version 1");
  EXPECT_EQ(changed(R"("v":1)", R"("v":0)"), "schema version 0; this library reads version 1");
  EXPECT_EQ(changed(R"("v":1)", R"("v":18446744073709551615)"),
            "schema version 18446744073709551615; this library reads version 1");
  EXPECT_EQ(changed(R"("v":1)", R"("v":"1")"), "it names no schema version");
  EXPECT_EQ(changed(R"("v":1,)", ""), "it names no schema version");
  EXPECT_EQ(changed("\"winner\"", "\"victor\""),
            "type 'victor' is none of sample, winner, fail, tombstone, miss");
  EXPECT_EQ(changed(R"("m":1,)", R"("m":2,)"), "key_sha is not the SHA-256 of the key");
  EXPECT_EQ(changed(record.key.json, "[]"), "field 'key' is no object");
  EXPECT_EQ(changed("\"env\":{\"k", "\"env\":3,\"x\":{\"k"), "field 'env' is no object");
  EXPECT_EQ(changed("\"env\":{\"k", "\"x\":{\"k"), "there is no field 'env'");
  EXPECT_EQ(changed("\"kernels\":\"7\"", "\"kernels\":7"), "field 'kernels' is no text");
  EXPECT_EQ(changed("\"candidate\"", "\"x\""), "there is no field 'candidate'");
  EXPECT_EQ(changed("\"mc\":96", "\"mc\":9.5"), "field 'mc' is no integer of 64 bits");
  EXPECT_EQ(changed("\"mc\":96", "\"mc\":9223372036854775808"),
            "field 'mc' is no integer of 64 bits");
  EXPECT_EQ(changed("\"stats\"", "\"x\""), "there is no field 'stats'");
  EXPECT_EQ(changed("0.125", "null"), "field 'median_ms' is no number");
  EXPECT_EQ(changed("0.125", "1e999"), "it is no record in JSON");
  EXPECT_EQ(changed("\"normal\"", "\"heroic\""),
            "effort 'heroic' is none of cut, quick, normal, thorough");
  EXPECT_EQ(changed("\"ok\":true", "\"ok\":1"), "field 'ok' is neither true nor false");
  EXPECT_EQ(changed("\"time\"", "\"x\""), "there is no field 'time'");
}

TEST(Record, DemandsOnlyWhatIsUsed) {
  Record record = record_of(RecordType::tombstone, 3);
  const std::string fields = R"({"v":1,"type":"tombstone","key":)" + record.key.json +
                             R"(,"key_sha":")" + record.key.sha +
                             R"(","env":{"kernels":"7"},"time":"2026-11-21T17:36:23Z")";
  record.env = {"7", "", "", "", "", "", ""};
  EXPECT_EQ(read(with_crc(fields)), record);
}

// Two of them with equal effort and time are told apart by their lines.
TEST(Record, IsRefusedWhereItsOwnLineWouldBeTooLong) {
  const Record small = winner_of(1);
  std::string fields = fields_of(small);
  // Without what may be left out a line is shorter than the one that is written of it.
  fields = replaced(fields, "\"budget_hit\":false,", "");
  for (const std::size_t room : {0, 1, 20, 60}) {
    const std::size_t others = with_crc(replaced(fields, "avx512_vnni", "")).size();
    const std::string line =
        with_crc(replaced(fields, "avx512_vnni", std::string(max_line_bytes - others - room, 'x')));
    ASSERT_EQ(line.size(), max_line_bytes - room);
    std::string why;
    const std::optional<Record> record = from_line(line, why);
    if (record)
      EXPECT_NO_THROW(to_line(*record));
    else
      EXPECT_NE(why.find("a line has at most 1048576"), std::string::npos) << why;
    EXPECT_EQ(record.has_value(), room >= 20) << room;
  }
}

TEST(Record, EveryChangedByteIsNoticed) {
  const std::string line = to_line(winner_of(77));
  ASSERT_TRUE(crc_matches(line));
  std::string why;
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string broken = line;
    for (int value = 0; value < 256; ++value) {
      if (static_cast<char>(value) == line[i]) continue;
      broken[i] = static_cast<char>(value);
      ASSERT_FALSE(crc_matches(broken)) << i << " " << value;
      const bool parse_too = value == (line[i] ^ 1) || value == (line[i] ^ 32) || value == ' ';
      if (parse_too) {
        ASSERT_FALSE(from_line(broken, why).has_value()) << i << " " << value;
      }
    }
    ASSERT_FALSE(crc_matches(line.substr(0, i)));
    ASSERT_FALSE(crc_matches(line.substr(0, i) + line.substr(i + 1))) << i;
  }
}

TEST(Record, HardEnvironmentsAreThoseOfTheVersions) {
  const Environment env{"7", "13.1", "2.6", "0.3", "580", "H200", "0.1.0"};
  EXPECT_TRUE(same_hard(env, env));
  for (std::string Environment::*soft :
       {&Environment::driver, &Environment::product, &Environment::tool}) {
    Environment other = env;
    other.*soft = "other";
    EXPECT_TRUE(same_hard(env, other));
    EXPECT_FALSE(env == other);
  }
  for (std::string Environment::*hard : {&Environment::kernels, &Environment::cublaslt,
                                         &Environment::onednn, &Environment::openblas}) {
    Environment other = env;
    other.*hard = "other";
    EXPECT_FALSE(same_hard(env, other));
  }
}

}  // namespace
}  // namespace switchback::autotune
