// SPDX-License-Identifier: Apache-2.0
// Tests of gemm_standard, the floating point product: refused arguments and their messages, its
// configurations and the choice among them.
#include <algorithm>
#include <functional>

#include "gemm/floating_support.hpp"
#include "gemm/library_versions.hpp"
#include "switchback/error.hpp"

namespace switchback {
namespace {

using test::FixedChoice;
using test::Matrix;

std::string failure(Context& context, const StandardGemmArgs& args, Status status) {
  try {
    gemm_standard(context, args);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    return error.what();
  }
  return "did not fail";
}

struct Operands {
  Matrix<float> a{4, 6}, b{6, 5}, d{4, 5}, bias{1, 5};
  Matrix<half> half_b{6, 5};
  Matrix<bfloat16> bf16_d{4, 5};
  Matrix<std::int8_t> codes{4, 6};
  StandardGemmArgs args;
  Operands() {
    args.a = a.cview();
    args.b = b.cview();
    args.d = AnyMatrix(d.view());
    args.bias = bias.cview();
  }
};

TEST(GemmStandardEntry, EveryRejectionNamesArgumentValueAndRule) {
  struct Row {
    std::string message;
    std::function<void(Operands&)> breaks;
  };
  const Row rows[] = {
      {"gemm_standard: a has dtype s8; it must be f32, f16 or bf16",
       [](Operands& o) { o.args.a = o.codes.cview(); }},
      {"gemm_standard: b has dtype f16; it must be that of a, f32",
       [](Operands& o) { o.args.b = o.half_b.cview(); }},
      {"gemm_standard: d has dtype bf16; it must be that of a, f32, or f32",
       [](Operands& o) { o.args.d = AnyMatrix(o.bf16_d.view()); }},
      {"gemm_standard: b is [6,5]; it must be [K,N] = [4,5]",
       [](Operands& o) { o.args.transpose_a = true; }},
      {"gemm_standard: b (transposed) is [6,5]; it must be [N,K] = [6,6]",
       [](Operands& o) { o.args.transpose_b = true; }},
      {"gemm_standard: d is [4,4]; it must be [M,N] = [4,5]",
       [](Operands& o) { o.args.d.cols = 4; }},
      {"gemm_standard: bias is [1,4]; it must be [1,N] = [1,5]",
       [](Operands& o) { o.args.bias.cols = 4; }},
      {"gemm_standard: a has stride = 5; it must be at least cols = 6",
       [](Operands& o) { o.args.a.stride = 5; }},
      {"gemm_standard: b has rows = -1; it must not be negative",
       [](Operands& o) { o.args.b.rows = -1; }},
      {"gemm_standard: a [4,6] stride 6 f32 has a null pointer; only an empty matrix may have one",
       [](Operands& o) { o.args.a.data = nullptr; }},
      {"gemm_standard: output d overlaps input a; they must not share memory",
       [](Operands& o) { o.args.d = AnyMatrix(o.a.data(), DType::f32, 4, 5, 6); }},
      {"gemm_standard: output d overlaps input bias; they must not share memory",
       [](Operands& o) { o.args.bias.data = o.d.data(); }},
      {"gemm_standard: engine 'mkl' is not one of onednn_sgemm, onednn_matmul, openblas, reference",
       [](Operands& o) { o.args.engine = "mkl"; }},
  };
  Context context(test::device_options());
  for (const auto& row : rows) {
    Operands o;
    row.breaks(o);
    EXPECT_EQ(failure(context, o.args, Status::invalid_argument), row.message);
  }
}

TEST(GemmStandardEntry, MissingEngineIsUnsupportedWithItsReason) {
  Context context(test::device_options());
  for (const auto& info : gemm_standard_engines(context)) {
    if (info.available) continue;
    Operands o;
    o.args.engine = info.name;
    const std::string message = failure(context, o.args, Status::unsupported);
    EXPECT_NE(message.find(info.reason), std::string::npos) << message;
  }
}

TEST(GemmStandardEntry, OpenBlasRefusesWhatItsIntegersCannotCount) {
  floating::Problem p;
  p.m = p.n = p.k = p.ldb = p.ldd = 1;
  p.lda = std::int64_t{1} << 31;
  const std::string reason = floating::openblas_engine.unsupported(p);
  EXPECT_NE(reason.find("2147483648"), std::string::npos) << reason;
  p.lda -= 1;
  EXPECT_EQ(floating::openblas_engine.unsupported(p), "");
}

TEST(GemmStandardConfig, DefaultIsFirstCandidateAndCandidatesDiffer) {
  const Context context(test::cpu_options());
  for (const std::int64_t m : {1, 16, 1024, 4096})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (int flags = 0; flags < 8; ++flags) {
        floating::Problem p;
        p.m = m;
        p.n = p.k = p.lda = p.ldb = p.ldd = 4096;
        p.input = p.output = dtype;
        p.transpose_a = (flags & 1) != 0;
        p.transpose_b = (flags & 2) != 0;
        p.bias = (flags & 4) != 0;
        const auto configs = floating::candidates(p, context.state());
        ASSERT_FALSE(configs.empty());
        EXPECT_EQ(configs.front(), floating::default_config(p, context.state()));
        for (auto i = configs.begin(); i != configs.end(); ++i) {
          EXPECT_EQ(std::find(i + 1, configs.end(), *i), configs.end()) << describe(*i);
          floating::Config back;
          EXPECT_TRUE(floating::from_choice(floating::to_choice(*i), back));
          EXPECT_EQ(back, *i);
        }
      }
}

TEST(GemmStandardConfig, DefaultFollowsTheMeasurements) {
  if (!floating::onednn_sgemm_engine.unavailable().empty()) GTEST_SKIP() << "no oneDNN";
  const Context context(test::cpu_options());
  floating::Problem p;
  p.n = p.k = p.lda = p.ldb = p.ldd = 4096;
  const auto chosen = [&](std::int64_t m, bool ta, bool tb, bool bias) {
    p.m = m;
    p.transpose_a = ta;
    p.transpose_b = tb;
    p.bias = bias;
    return floating::default_config(p, context.state()).engine;
  };
  using floating::EngineId;
  EXPECT_EQ(chosen(1, false, true, false), EngineId::onednn_sgemm);
  EXPECT_EQ(chosen(16, false, true, false), EngineId::onednn_matmul);
  EXPECT_EQ(chosen(1024, false, true, false), EngineId::onednn_sgemm);
  EXPECT_EQ(chosen(1024, false, true, true), EngineId::onednn_matmul);
  EXPECT_EQ(chosen(16, false, false, false), EngineId::onednn_sgemm);
  EXPECT_EQ(chosen(4096, true, false, false), EngineId::onednn_sgemm);
}

TEST(GemmStandardConfig, QueriesTellProblemsApart) {
  floating::Problem p;
  p.m = 1, p.n = 2, p.k = 3, p.lda = 4, p.ldb = 5, p.ldd = 6, p.threads = 7;
  const ConfigQuery query = floating::to_query(p);
  EXPECT_EQ(query.op, ConfigOp::gemm_floating);
  const std::function<void(floating::Problem&)> changes[] = {
      [](auto& q) { q.m = 9; },
      [](auto& q) { q.n = 9; },
      [](auto& q) { q.k = 9; },
      [](auto& q) { q.lda = 9; },
      [](auto& q) { q.ldb = 9; },
      [](auto& q) { q.ldd = 9; },
      [](auto& q) { q.input = DType::f16; },
      [](auto& q) { q.output = DType::f16; },
      [](auto& q) { q.transpose_a = true; },
      [](auto& q) { q.transpose_b = true; },
      [](auto& q) { q.accumulate = true; },
      [](auto& q) { q.bias = true; },
      [](auto& q) { q.threads = 9; },
  };
  std::vector<ConfigQuery> queries = {query};
  for (const auto& change : changes) {
    floating::Problem q = p;
    change(q);
    queries.push_back(floating::to_query(q));
    EXPECT_NE(describe(q), describe(p));
  }
  for (std::size_t i = 0; i < queries.size(); ++i)
    for (std::size_t j = i + 1; j < queries.size(); ++j)
      EXPECT_FALSE(queries[i] == queries[j]) << i << "," << j;
}

// Numbers that are not a configuration, and one that its engine refuses: the reference engine does
// not support pack_b.
TEST(GemmStandardConfig, ChoicesThatCannotRunFallBackToTheDefault) {
  std::vector<ConfigChoice> choices = {
      floating::to_choice({floating::EngineId::reference, true, 0})};
  for (const std::int64_t engine : {-1, 6, 99})
    for (const std::int64_t pack : {0, 2}) {
      ConfigChoice choice;
      choice.words[0] = engine;
      choice.words[1] = pack;
      floating::Config config;
      EXPECT_FALSE(floating::from_choice(choice, config));
      choices.push_back(choice);
    }
  Context context(test::device_options());
  test::Random random(1);
  for (const ConfigChoice& choice : choices) {
    const auto source = std::make_shared<FixedChoice>(choice);
    context.set_config_source(source);
    test::Case c;
    c.shape = {4, 5, 6};
    test::Trial trial(c, random);
    auto d = trial.run(context);
    EXPECT_TRUE(trial.close(d));
    EXPECT_EQ(source->asked(), 1);
  }
}

TEST(LibraryVersions, NameWhatIsBuiltIn) {
  for (const auto& [name, text] : library_versions(DeviceKind::cpu)) {
    EXPECT_TRUE(name == "oneDNN" || name == "OpenBLAS") << name;
    EXPECT_GT(text.size(), 5u) << name;
  }
}

}  // namespace
}  // namespace switchback
