// SPDX-License-Identifier: Apache-2.0
// A cache of schema 1 as it was written when configurations were still flat words, with problems
// and engines of every operation and of a GPU: what stands in it is read, and written again byte by
// byte.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/operations.hpp"
#include "autotune/store/line.hpp"
#include "autotune/store/record.hpp"

namespace switchback::autotune {
namespace {

TEST(OldCache, EveryKeyAndCandidateIsReadAndWrittenAsItWas) {
  std::ifstream file(SWITCHBACK_OLD_CACHE);
  ASSERT_TRUE(file.is_open()) << SWITCHBACK_OLD_CACHE;
  std::map<ConfigOp, std::set<std::string>> engines;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    SCOPED_TRACE(number);
    Record record;
    std::string why;
    ASSERT_EQ(parse(line, record, why), LineKind::record) << why;
    EXPECT_EQ(to_line(record), line);

    const auto parts = parse_key(record.key.json, why);
    ASSERT_TRUE(parts.has_value()) << why;
    const Key key = key_of(parts->query, parts->machine, parts->policy);
    EXPECT_EQ(key.json, record.key.json);
    EXPECT_EQ(key.sha, record.key.sha);
    EXPECT_NE(describe(parts->query), "unknown");

    const ConfigOp op = parts->query.op;
    const auto choice = to_choice(op, record.candidate, why);
    ASSERT_TRUE(choice.has_value()) << why;
    CandidateText candidate = to_text(op, *choice);
    // A sample of a composed operation is one way, which is no ranking.
    if (tunable_of(op).is_composed() && record.type == RecordType::sample)
      candidate.attributes.clear();
    EXPECT_EQ(candidate.engine, record.candidate.engine);
    EXPECT_EQ(candidate.attributes, record.candidate.attributes);
    engines[op].insert(candidate.engine);
  }
  std::set<ConfigOp> operations_then;
  for (const auto& [op, names] : engines)
    operations_then.insert(op);
  EXPECT_EQ(operations_then, (std::set<ConfigOp>{ConfigOp::quantize, ConfigOp::gemm_int8,
                                                 ConfigOp::gemm_floating, ConfigOp::layer_mode}));
  for (const char* engine : {"cublaslt", "cublaslt_panels", "dp4a", "fused"})
    EXPECT_TRUE(engines[ConfigOp::gemm_int8].contains(engine)) << engine;
}

// Near problems share everything but the number of tokens, which is the inner dimension of dW.
TEST(OldCache, FamiliesLeaveOutTheTokens) {
  std::ifstream file(SWITCHBACK_OLD_CACHE);
  std::set<std::string> left_out;
  std::string line;
  while (std::getline(file, line)) {
    Record record;
    std::string why;
    ASSERT_EQ(parse(line, record, why), LineKind::record) << why;
    const auto parts = parse_key(record.key.json, why);
    ASSERT_TRUE(parts.has_value()) << why;
    const Family family = family_of(parts->query, parts->machine, parts->policy);
    for (const char* name : {"m", "k", "rows"}) {
      const std::string member = '"' + std::string(name) + "\":" + std::to_string(family.m);
      std::string without = record.key.json;
      for (const std::string& text : {',' + member + ',', ',' + member + '}'})
        if (const std::size_t at = without.find(text); at != std::string::npos)
          without.erase(at, text.size() - 1);
      if (without != family.key.json) continue;
      left_out.insert(tunable_of(parts->query.op).name.data() + std::string(" ") + name);
    }
  }
  EXPECT_EQ(left_out, (std::set<std::string>{"gemm_int8 m", "gemm_standard k", "gemm_standard m",
                                             "layer_mode m", "quantize rows"}));
}

}  // namespace
}  // namespace switchback::autotune
