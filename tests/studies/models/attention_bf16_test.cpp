// SPDX-License-Identifier: Apache-2.0
// Tests of bf16 attention with instructions that multiply bf16: every set of kernels that this CPU
// has is compared with the formula in f64, each element within its own bound.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/aligned_buffer.hpp"
#include "core/cpu/isa.hpp"
#include "studies/models/cpu/attention_bf16.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using models::AttentionShape;
using models::Memory;
using models::Tensor;
namespace bf16 = models::bf16;

// Calls f(context, a name) for each instruction set that has its own bf16 kernels.
template <class F>
void for_bf16_contexts(F&& f) {
  int contexts = 0;
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    if (bf16::kernels_for(context.state(), DType::bf16) == nullptr) continue;
    ++contexts;
    f(context, describe(options));
  }
  if (contexts == 0) GTEST_SKIP() << "no instructions that multiply bf16";
}

// The operands of an attention and of its gradient, and their results.
struct Bf16Run {
  Bf16Run(Memory& memory, const AttentionShape& s, double scale = 2)
      : shape(s),
        qkv(filled(memory, DType::bf16, s.rows(), 3 * s.width(), 1, scale)),
        out(tensor(memory, DType::bf16, s.rows(), s.width())),
        lse(tensor(memory, DType::f32, 1, s.rows() * s.heads)),
        dout(filled(memory, DType::bf16, s.rows(), s.width(), 2)),
        dqkv(tensor(memory, DType::bf16, s.rows(), 3 * s.width())) {}
  void run(Context& context) const {
    models::attention(context.state(), shape, qkv.any(), out.any(), lse.floats());
    models::attention_backward(context.state(), shape, qkv.any(), out.any(), lse.floats(),
                               dout.any(), dqkv.any());
  }
  AttentionShape shape;
  Tensor qkv, out, lse, dout, dqkv;
};

Values results_of(const Bf16Run& r) {
  Values all;
  for (const Tensor* t : {&r.out, &r.lse, &r.dqkv}) {
    const Values more = values_of(*t);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// The results of the formula, and the most by which each element may differ from them.
struct Bounded {
  explicit Bounded(std::size_t size) : want(size), bound(size) {}
  Values want, bound;
};
struct BoundedResults {
  Bounded out, lse, dqkv;
};

// Bounds from the roundings, of first order, with a hundredth added for the higher orders.
//
// A factor or result that is rounded to bf16 moves by `round` of itself. A weight that is not
// rounded yet moves by `loose`: 9e-5 by its power of two, as much by the sum that it is divided by,
// and what a score of dim products moves by. Each of these, and the sum so far, is rounded to 2^-24
// of at most the magnitudes that were added (vdpbf16ps and tdpbf16ps round no product, or each
// pair; subnormals, which they take as zero, are below 2^-126 of anything here), as are the score's
// factor and the shift, which is not larger than the scores. A sum over n tokens moves by n · 2^-23
// of what is added.
BoundedResults bounded_results(const Bf16Run& r) {
  constexpr double round = 0x1p-8;
  const auto& [batch, length, heads, dim] = r.shape;
  const auto width = static_cast<std::size_t>(r.shape.width());
  const auto n = static_cast<std::size_t>(length);
  const auto d = static_cast<std::size_t>(dim);
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const Values qkv = values_of(r.qkv), dout = values_of(r.dout), got_out = values_of(r.out);
  BoundedResults all = {Bounded(dout.size()), Bounded(static_cast<std::size_t>(r.lse.size())),
                        Bounded(qkv.size())};
  const double tokens = static_cast<double>(length) * 0x1p-23;
  for (std::size_t head = 0; head < static_cast<std::size_t>(batch * heads); ++head) {
    const std::size_t first = head / static_cast<std::size_t>(heads) * n;
    const std::size_t column = head % static_cast<std::size_t>(heads) * d;
    const auto of_out = [&](std::size_t t) { return (first + t) * width + column; };
    const auto of_qkv = [&](std::size_t t, std::size_t part) {
      return (first + t) * 3 * width + part * width + column;
    };
    // The sum of the products of two rows, and the sum of the products' magnitudes.
    const auto dot_of = [&](const Values& a, std::size_t i, const Values& b, std::size_t j) {
      std::pair<double, double> sums;
      for (std::size_t c = 0; c < d; ++c) {
        sums.first += a[i + c] * b[j + c];
        sums.second += std::fabs(a[i + c] * b[j + c]);
      }
      return sums;
    };
    const double of_products = (static_cast<double>(dim) + 8) * 0x1p-23;
    for (std::size_t t = 0; t < n; ++t) {
      Values p(t + 1);
      double most = -std::numeric_limits<double>::infinity(), magnitude = 0;
      for (std::size_t s = 0; s <= t; ++s) {
        const auto [score, size] = dot_of(qkv, of_qkv(t, 0), qkv, of_qkv(s, 1));
        p[s] = scale * score;
        most = std::max(most, p[s]);
        magnitude = std::max(magnitude, scale * size);
      }
      double total = 0;
      for (double& weight : p)
        total += weight = std::exp(weight - most);
      const double loose = 2e-4 + 2 * of_products * magnitude + tokens;
      const std::size_t query = head * n + t;
      all.lse.want[query] = most + std::log(total);
      all.lse.bound[query] = loose + 0x1p-22 * std::fabs(all.lse.want[query]);
      Bounded& out = all.out;
      for (std::size_t s = 0; s <= t; ++s) {
        p[s] /= total;
        for (std::size_t c = 0; c < d; ++c) {
          const double term = p[s] * qkv[of_qkv(s, 2) + c];
          out.want[of_out(t) + c] += term;
          out.bound[of_out(t) + c] += (round + loose) * std::fabs(term);
        }
      }
      // out · dout, with the `out` that the gradient's kernel was given, and its distance from the
      // exact one.
      double mean = 0, mean_moves = 0;
      for (std::size_t i = of_out(t); i < of_out(t) + d; ++i) {
        mean += got_out[i] * dout[i];
        mean_moves += std::fabs((got_out[i] - out.want[i]) * dout[i]);
        mean_moves += of_products * std::fabs(got_out[i] * dout[i]);
      }
      for (std::size_t s = 0; s <= t; ++s) {
        const auto [dp, dp_size] = dot_of(dout, of_out(t), qkv, of_qkv(s, 2));
        const double ds = scale * p[s] * (dp - mean);
        const double ds_moves =
            (round + loose) * std::fabs(ds) + scale * p[s] * (of_products * dp_size + mean_moves);
        const auto add = [&](std::size_t to, double factor, double moves, double other) {
          all.dqkv.want[to] += factor * other;
          all.dqkv.bound[to] += (moves + tokens * std::fabs(factor)) * std::fabs(other);
        };
        for (std::size_t c = 0; c < d; ++c) {
          add(of_qkv(t, 0) + c, ds, ds_moves, qkv[of_qkv(s, 1) + c]);
          add(of_qkv(s, 1) + c, ds, ds_moves, qkv[of_qkv(t, 0) + c]);
          add(of_qkv(s, 2) + c, p[s], (round + loose) * p[s], dout[of_out(t) + c]);
        }
      }
    }
  }
  for (Bounded* of_bf16 : {&all.out, &all.dqkv})
    for (std::size_t i = 0; i < of_bf16->want.size(); ++i)
      of_bf16->bound[i] += round * std::fabs(of_bf16->want[i]);
  return all;
}

// Each element must be within its bound, or within 2^-120, which covers sums of subnormals.
void expect_within(const Tensor& result, const Bounded& b, const std::string& what) {
  const Values got = values_of(result);
  ASSERT_EQ(got.size(), b.want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - b.want[i]) <= 1.01 * b.bound[i] + 0x1p-120)) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", not " << b.want[i]
                    << " within " << b.bound[i];
      return;
    }
}

// Compares an attention and its gradient with the formula. Queries, keys and values are between
// -scale and scale.
void expect_bounded(Context& context, const AttentionShape& shape, double scale,
                    const std::string& name) {
  Memory memory;
  const Bf16Run r(memory, shape, scale);
  r.run(context);
  const BoundedResults b = bounded_results(r);
  const std::string what =
      name + " length " + std::to_string(shape.length) + " width " + std::to_string(shape.head_dim);
  expect_within(r.out, b.out, what + " out");
  expect_within(r.lse, b.lse, what + " logsumexp");
  expect_within(r.dqkv, b.dqkv, what + " gradient");
}

TEST(Bf16Attention, KernelsAreThoseOfTheInstructionSet) {
  for (const ContextOptions& options : isa_contexts()) {
    Context context(options);
    const core::CpuFeatures& features = context.state().features;
    EXPECT_EQ(bf16::kernels_for(context.state(), DType::f32), nullptr) << describe(options);
    const bf16::Kernels* const kernels = bf16::kernels_for(context.state(), DType::bf16);
    if (features.amx_bf16 && bf16::kernels_of_amx() != nullptr) {
      EXPECT_EQ(kernels, bf16::kernels_of_amx()) << describe(options);
    } else if (features.avx512_bf16) {
      // Every compiler that can build the project knows these instructions, so there are kernels.
      EXPECT_NE(kernels, nullptr) << describe(options);
      EXPECT_EQ(kernels, bf16::kernels_of_avx512()) << describe(options);
    } else {
      EXPECT_EQ(kernels, nullptr) << describe(options);
    }
  }
}

// Lengths around a block (32), around half a block, and around a tile of queries or keys (256).
// Head widths that are not multiples of a block, or less than a pair.
TEST(Bf16AttentionReference, IsWithinBoundsOfItsRoundings) {
  for_bf16_contexts([](Context& context, const std::string& name) {
    for (const auto& [length, dim] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {1, 64},
                                      {2, 3},
                                      {15, 32},
                                      {16, 31},
                                      {17, 33},
                                      {31, 32},
                                      {32, 64},
                                      {33, 2},
                                      {63, 80},
                                      {64, 16},
                                      {65, 96},
                                      {255, 8},
                                      {256, 32},
                                      {257, 40},
                                      {513, 5}})
      expect_bounded(context, {.batch = 2, .length = length, .heads = 2, .head_dim = dim}, 2, name);
  });
}

// Scores are in the hundreds: sums of weights relative to 2^0 leave the range of f32, and are
// computed again.
TEST(Bf16AttentionReference, IsWithinBoundsWhereScoresAreLarge) {
  for_bf16_contexts([](Context& context, const std::string& name) {
    expect_bounded(context, {.batch = 1, .length = 290, .heads = 2, .head_dim = 48}, 12, name);
  });
}

// Operands below 2^-126. The multiply instructions treat them as zero.
TEST(Bf16AttentionReference, IsWithinBoundsWhereOperandsAreSubnormal) {
  for_bf16_contexts([](Context& context, const std::string& name) {
    expect_bounded(context, {.batch = 1, .length = 70, .heads = 1, .head_dim = 33}, 0x1p-127, name);
  });
}

// Old data in scratch memory reach no result, although a product on the diagonal does not write all
// parts of a block.
TEST(Bf16Attention, StaleScratchReachesNoResult) {
  const core::CpuFeatures& features = core::cpu_features();
  std::vector<const bf16::Kernels*> all;
  if (features.amx_bf16) all.push_back(bf16::kernels_of_amx());
  if (features.avx512_bf16) all.push_back(bf16::kernels_of_avx512());
  std::erase(all, nullptr);
  if (all.empty()) GTEST_SKIP() << "no instructions that multiply bf16";
  for (const bf16::Kernels* const kernels : all)
    for (const auto& [length, dim] :
         {std::pair<std::int64_t, std::int64_t>{1, 3}, {33, 32}, {100, 40}, {289, 16}}) {
      Memory memory;
      const auto size = static_cast<std::size_t>(
          std::max(kernels->forward_bytes(length, dim), kernels->backward_bytes(length, dim)));
      core::AlignedBuffer scratch;
      scratch.reserve(size);
      std::vector<Values> results;
      for (const int byte : {0, 0xFF}) {  // 0xFF: a NaN in bf16 and f32
        const Bf16Run r(memory, {.batch = 1, .length = length, .heads = 1, .head_dim = dim});
        const auto elements = [](const Tensor& t) {
          return static_cast<std::uint16_t*>(t.any().data);
        };
        const bf16::Head head = {.qkv = {elements(r.qkv), 3 * dim},
                                 .width = dim,
                                 .length = length,
                                 .dim = dim,
                                 .scale = 1 / std::sqrt(static_cast<float>(dim))};
        for (std::int64_t begin = 0; begin < length; begin += 256) {
          std::memset(scratch.as<void>(), byte, size);
          kernels->forward({.head = head,
                            .begin = begin,
                            .end = std::min<std::int64_t>(length, begin + 256),
                            .out = {elements(r.out), dim, false},
                            .logsumexp = r.lse.floats().data(),
                            .ahead = {}},
                           scratch.as<void>(), nullptr);
        }
        std::memset(scratch.as<void>(), byte, size);
        kernels->backward({.head = head,
                           .out = {elements(r.out), dim},
                           .dout = {elements(r.dout), dim},
                           .logsumexp = r.lse.floats().data(),
                           .dqkv = {elements(r.dqkv), 3 * dim, false},
                           .ahead = {}},
                          scratch.as<void>(), nullptr);
        results.push_back(results_of(r));
      }
      EXPECT_EQ(results[0], results[1]) << length << " " << dim;
    }
}

// A NaN in the gradient of `out` reaches the gradient of that token's query, and the gradients of
// the keys and values that this query sees. It also reaches at most 31 later tokens, whose weights
// of zero are factors of the same products.
TEST(Bf16Attention, NaNOfAGradientReachesWhatItsQuerySees) {
  for_bf16_contexts([](Context& context, const std::string& name) {
    Memory memory;
    constexpr std::int64_t length = 300, dim = 16, token = 75;
    const Bf16Run r(memory, {.batch = 1, .length = length, .heads = 1, .head_dim = dim});
    r.run(context);
    const Values before = values_of(r.dqkv);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      core::store_float(r.dout.any().data, DType::bf16, token * dim, value);
      r.run(context);
      const Values after = values_of(r.dqkv);
      for (std::int64_t t = 0; t < length; ++t)
        for (std::int64_t part = 0; part < 3; ++part)
          for (std::int64_t c = 0; c < dim; ++c) {
            const auto i = static_cast<std::size_t>((t * 3 + part) * dim + c);
            // dV has a single column of dout as factor; dQ and dK have the products with all
            // columns.
            const bool sees = part == 0 ? t == token : t <= token && (part == 1 || c == 0);
            const bool may_see = sees || (part != 0 && t > token && t < token + 32);
            if (sees) {
              ASSERT_FALSE(std::isfinite(after[i])) << name << " " << t << " " << part << " " << c;
            } else if (!may_see) {
              ASSERT_EQ(after[i], before[i]) << name << " " << t << " " << part << " " << c;
            }
          }
    }
  });
}

// Each head has several tasks, which are divided unevenly among the threads.
TEST(Bf16Attention, BitsDoNotDependOnThreads) {
  for (const ContextOptions& one : isa_contexts(1)) {
    std::vector<Values> all;
    for (const int threads : {1, 2, 5}) {
      ContextOptions options = one;
      options.threads = threads;
      Context context(options);
      if (bf16::kernels_for(context.state(), DType::bf16) == nullptr) break;
      Memory memory;
      const Bf16Run r(memory, {.batch = 1, .length = 530, .heads = 3, .head_dim = 24});
      r.run(context);
      all.push_back(results_of(r));
      EXPECT_EQ(all.front(), all.back()) << describe(options);
    }
  }
}

}  // namespace
}  // namespace switchback::test
