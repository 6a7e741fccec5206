// SPDX-License-Identifier: Apache-2.0
// Tests of every layer's forward against its formula in f64, and of its gradients against central
// differences of that formula, on every instruction set, with one thread and several.
#include "studies/models/kernels.hpp"

#include <algorithm>
#include <limits>

#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;
using reference::dot;
using reference::gradient;

TEST(ModelsGradient, RmsNorm) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const auto& [rows, cols] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 37}, {70, 16}}) {
      const Tensor x = filled(memory, s.dtype, rows, cols, 1, 2);
      const Tensor more = filled(memory, s.dtype, rows, cols, 2);
      const Tensor gain = filled(memory, DType::f32, 1, cols, 3);
      const Tensor dy = filled(memory, s.dtype, rows, cols, 4);
      const Tensor sum = tensor(memory, s.dtype, rows, cols);
      const Tensor y = tensor(memory, s.dtype, rows, cols);
      const Tensor rstd = tensor(memory, DType::f32, 1, rows);
      rms_norm(s.context.state(), {.x = x.any(),
                                   .add = more.any(),
                                   .sum = sum.any(),
                                   .gain = gain.floats(),
                                   .y = y.any(),
                                   .rstd = rstd.floats()});
      const double tolerance = tolerance_of(s.dtype);
      expect_near(values_of(sum), reference::sum(values_of(x), values_of(more)), tolerance, s.name);
      const auto formula = [&, c = cols](const Values& input, const Values& g) {
        return reference::rms_norm(input, c, g);
      };
      expect_near(values_of(y), formula(values_of(sum), values_of(gain)), tolerance, s.name);

      const Tensor dx = filled(memory, s.dtype, rows, cols, 5);
      const Values before = values_of(dx);
      const Tensor dgain = filled(memory, DType::f32, 1, cols, 6);
      const Values dgain_before = values_of(dgain);
      rms_norm_backward(s.context.state(), {.s = sum.any(),
                                            .gain = gain.floats(),
                                            .rstd = rstd.floats(),
                                            .dy = dy.any(),
                                            .dx = dx.any(),
                                            .dgain = dgain.floats(),
                                            .accumulate = true});
      const Values want_dx =
          gradient([&](const Values& v) { return dot(formula(v, values_of(gain)), values_of(dy)); },
                   values_of(sum));
      const Values want_dgain =
          gradient([&](const Values& v) { return dot(formula(values_of(sum), v), values_of(dy)); },
                   values_of(gain));
      expect_near(values_of(dx), reference::sum(before, want_dx), tolerance, s.name + " dx");
      expect_near(values_of(dgain), reference::sum(dgain_before, want_dgain), 1e-5,
                  s.name + " dgain");
    }
  });
}

TEST(ModelsGradient, LayerNorm) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{3, 37}, {70, 16}}) {
      const Tensor x = filled(memory, s.dtype, rows, cols, 1, 2);
      const Tensor more = filled(memory, s.dtype, rows, cols, 2);
      const Tensor gain = filled(memory, DType::f32, 1, cols, 3);
      const Tensor bias = filled(memory, DType::f32, 1, cols, 4);
      const Tensor dy = filled(memory, s.dtype, rows, cols, 5);
      const Tensor sum = tensor(memory, s.dtype, rows, cols);
      const Tensor y = tensor(memory, s.dtype, rows, cols);
      const Tensor mean = tensor(memory, DType::f32, 1, rows);
      const Tensor rstd = tensor(memory, DType::f32, 1, rows);
      layer_norm(s.context.state(), {.x = x.any(),
                                     .add = more.any(),
                                     .sum = sum.any(),
                                     .gain = gain.floats(),
                                     .bias = bias.floats(),
                                     .y = y.any(),
                                     .mean = mean.floats(),
                                     .rstd = rstd.floats()});
      const double tolerance = tolerance_of(s.dtype);
      const auto formula = [&, c = cols](const Values& input, const Values& g, const Values& b) {
        return reference::layer_norm(input, c, g, b);
      };
      const Values v_sum = values_of(sum), v_gain = values_of(gain), v_bias = values_of(bias);
      const Values v_dy = values_of(dy);
      expect_near(values_of(y), formula(v_sum, v_gain, v_bias), tolerance, s.name);
      const Tensor dx = tensor(memory, s.dtype, rows, cols);
      const Tensor dgain = tensor(memory, DType::f32, 1, cols);
      const Tensor dbias = tensor(memory, DType::f32, 1, cols);
      layer_norm_backward(s.context.state(), {.s = sum.any(),
                                              .gain = gain.floats(),
                                              .mean = mean.floats(),
                                              .rstd = rstd.floats(),
                                              .dy = dy.any(),
                                              .dx = dx.any(),
                                              .dgain = dgain.floats(),
                                              .dbias = dbias.floats()});
      const auto loss = [&](const Values& a, const Values& b, const Values& c) {
        return dot(formula(a, b, c), v_dy);
      };
      expect_near(values_of(dx),
                  gradient([&](const Values& v) { return loss(v, v_gain, v_bias); }, v_sum),
                  tolerance, s.name + " dx");
      expect_near(values_of(dgain),
                  gradient([&](const Values& v) { return loss(v_sum, v, v_bias); }, v_gain), 1e-5,
                  s.name + " dgain");
      expect_near(values_of(dbias),
                  gradient([&](const Values& v) { return loss(v_sum, v_gain, v); }, v_bias), 1e-5,
                  s.name + " dbias");
    }
  });
}

TEST(ModelsGradient, Rope) {
  constexpr std::int64_t batch = 2, length = 5, heads = 2;
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const std::int64_t dim : {2, 6, 40}) {
      const Tensor cosines = tensor(memory, DType::f32, length, dim / 2);
      const Tensor sines = tensor(memory, DType::f32, length, dim / 2);
      for (std::int64_t i = 0; i < cosines.size(); ++i) {
        const double angle =
            static_cast<double>(i / (dim / 2)) *
            std::pow(10000.0, -2.0 * static_cast<double>(i % (dim / 2)) / static_cast<double>(dim));
        cosines.floats()[static_cast<std::size_t>(i)] = static_cast<float>(std::cos(angle));
        sines.floats()[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(angle));
      }
      const Rope args{heads, dim, length, cosines.floats(), sines.floats()};
      const Tensor qkv = filled(memory, s.dtype, batch * length, 3 * heads * dim, 1);
      const Values before = values_of(qkv);
      rope(s.context.state(), args, qkv.any(), false);
      const auto formula = [&](const Values& v) {
        return reference::rope(v, length, heads, dim, 10000.0);
      };
      expect_near(values_of(qkv), formula(before), tolerance_of(s.dtype), s.name);
      const Tensor g = filled(memory, s.dtype, batch * length, 3 * heads * dim, 2);
      const Values dy = values_of(g);
      rope(s.context.state(), args, g.any(), true);
      expect_near(values_of(g),
                  gradient([&](const Values& v) { return dot(formula(v), dy); }, before),
                  tolerance_of(s.dtype), s.name + " gradient");
    }
  });
}

// The operands of an attention, and its results.
struct AttentionRun {
  AttentionRun(const Setting& s, Memory& memory, const AttentionShape& shape)
      : qkv(filled(memory, s.dtype, shape.rows(), 3 * shape.width(), 1, 2)),
        out(tensor(memory, s.dtype, shape.rows(), shape.width())),
        lse(tensor(memory, DType::f32, 1, shape.rows() * shape.heads)) {
    attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
  }
  Tensor qkv, out, lse;
};

// An attention, and the operands and results of its gradient.
struct AttentionGradient : AttentionRun {
  AttentionGradient(const Setting& s, Memory& memory, const AttentionShape& shape)
      : AttentionRun(s, memory, shape),
        dout(filled(memory, s.dtype, shape.rows(), shape.width(), 2)),
        dqkv(tensor(memory, s.dtype, shape.rows(), 3 * shape.width())) {
    attention_backward(s.context.state(), shape, qkv.any(), out.any(), lse.floats(), dout.any(),
                       dqkv.any());
  }
  Tensor dout, dqkv;
};

// Whether this build is too slow for long sequences. It may leave them out, because accesses out of
// bounds happen at the edges of a tile.
bool is_slow() {
  return under_address_sanitizer && on_emulated();
}

// The lengths are around a tile (64), around the vectors and rows of register tiles in it, and
// around a second part of a head (256). The head widths are not multiples of a vector. Products of
// bf16 round the weights too, each to 2^-8 of itself and at random, so that sums of weighted values
// err less than the rounding of a result.
TEST(ModelsReference, AttentionForward) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const auto& [length, dim] : {std::pair<std::int64_t, std::int64_t>{1, 3},
                                      {2, 16},
                                      {7, 33},
                                      {16, 8},
                                      {17, 5},
                                      {63, 8},
                                      {64, 20},
                                      {65, 18},
                                      {73, 80},
                                      {129, 64},
                                      {257, 4}}) {
      if (length > 80 && is_slow()) continue;
      const AttentionShape shape{.batch = 2, .length = length, .heads = 3, .head_dim = dim};
      const AttentionRun run(s, memory, shape);
      expect_near(values_of(run.out), reference::attention(values_of(run.qkv), 2, length, 3, dim),
                  tolerance_of(s.dtype), s.name + " length " + std::to_string(length));
    }
  });
}

// Scores that differ by hundreds, so that weights vanish and the largest score moves from tile to
// tile. Then a NaN in a key, which only its own query and later ones may see.
TEST(ModelsReference, AttentionOfLargeScoresAndNaN) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const AttentionShape shape{.batch = 1, .length = 150, .heads = 1, .head_dim = 16};
    const Tensor qkv = filled(memory, s.dtype, 150, 48, 1, 12);
    const Tensor out = tensor(memory, s.dtype, 150, 16);
    const Tensor lse = tensor(memory, DType::f32, 1, 150);
    attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
    // A score of some hundreds is rounded to 2^-24 of itself. Its weight has a relative error as
    // large as the absolute error of the score.
    expect_near(values_of(out), reference::attention(values_of(qkv), 1, 150, 1, 16),
                s.dtype == DType::f32 ? 2e-4 : 0.02, s.name);
    const Values before = values_of(out);
    core::store_float(qkv.any().data, s.dtype, 70 * 48 + 16,  // a key
                      std::numeric_limits<float>::quiet_NaN());
    attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
    const Values after = values_of(out);
    for (std::size_t i = 0; i < after.size(); ++i)
      if (i < 70 * 16)
        ASSERT_EQ(after[i], before[i]) << s.name << " " << i;
      else
        ASSERT_TRUE(std::isnan(after[i])) << s.name << " " << i;
  });
}

// A NaN or Inf among the values reaches the query of its token and all later ones, and at most 31
// before it. All other elements have the same bits as without it.
TEST(ModelsReference, AttentionOfValuesThatAreNaNOrInf) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    constexpr std::size_t dim = 16, token = 95;
    const AttentionShape shape{.batch = 1, .length = 130, .heads = 1, .head_dim = dim};
    const Tensor qkv = filled(memory, s.dtype, 130, 3 * dim, 1);
    const Tensor out = tensor(memory, s.dtype, 130, dim);
    const Tensor lse = tensor(memory, DType::f32, 1, 130);
    attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
    const Values before = values_of(out);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      core::store_float(qkv.any().data, s.dtype, token * 3 * dim + 2 * dim, value);
      attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
      const Values after = values_of(out);
      for (std::size_t i = 0; i < after.size(); ++i)
        if (i % dim != 0 || i / dim + 31 < token) {
          ASSERT_EQ(after[i], before[i]) << s.name << " " << value << " " << i;
        } else if (i / dim >= token) {
          ASSERT_FALSE(std::isfinite(after[i])) << s.name << " " << value << " " << i;
        }
    }
  });
}

// Compares the gradient at lengths around a tile with its formula: for so large sizes, central
// differences would take too long.
TEST(ModelsReference, AttentionBackward) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const auto& [length, dim] : {std::pair<std::int64_t, std::int64_t>{1, 3},
                                      {17, 20},
                                      {63, 16},
                                      {64, 5},
                                      {65, 64},
                                      {130, 8},
                                      {200, 33},
                                      {289, 32}}) {
      if (length > 80 && is_slow()) continue;
      const AttentionShape shape{.batch = 2, .length = length, .heads = 2, .head_dim = dim};
      const AttentionGradient run(s, memory, shape);
      expect_near(
          values_of(run.dqkv),
          reference::attention_gradient(values_of(run.qkv), values_of(run.dout), 2, length, 2, dim),
          tolerance_of(s.dtype), s.name + " length " + std::to_string(length));
    }
  });
}

TEST(ModelsGradient, Attention) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    // Central differences of all inputs are slow: sequences are short, or have few heads if they
    // are longer than a tile.
    for (const auto& [length, heads, dim] :
         {std::tuple<std::int64_t, std::int64_t, std::int64_t>{7, 2, 5}, {70, 1, 2}}) {
      if (length > 10 && (s.dtype != DType::f32 || under_address_sanitizer)) continue;
      const AttentionShape shape{.batch = 2, .length = length, .heads = heads, .head_dim = dim};
      const AttentionGradient run(s, memory, shape);
      const Values want = gradient(
          [&, h = heads, d = dim, n = length](const Values& v) {
            return dot(reference::attention(v, 2, n, h, d), values_of(run.dout));
          },
          values_of(run.qkv));
      expect_near(values_of(run.dqkv), want, tolerance_of(s.dtype), s.name);
    }
  });
}

// Results that are larger than a core's cache are written with non-temporal stores. They have the
// bits of the same results computed in parts.
TEST(ModelsReference, LargeResultsAreThoseOfTheirParts) {
  const auto l2 = std::max<std::int64_t>(static_cast<std::int64_t>(core::cpu_caches().l2_bytes),
                                         std::int64_t{1} << 20);
  constexpr std::int64_t length = 64, heads = 3, dim = 24, width = heads * dim;
  const std::int64_t batch = on_emulated() ? 2 : l2 / (length * width * 4) + 1;
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    Memory memory(visible_memory(context));
    const AttentionShape all{.batch = batch, .length = length, .heads = heads, .head_dim = dim};
    const AttentionShape one{.batch = 1, .length = length, .heads = heads, .head_dim = dim};
    const Tensor qkv = filled(memory, DType::f32, all.rows(), 3 * width, 1, 2);
    const Tensor dout = filled(memory, DType::f32, all.rows(), width, 2);
    const auto run = [&](const AttentionShape& shape, std::int64_t first_row, const Tensor& out,
                         const Tensor& dqkv) {
      const auto part = [&](const Tensor& t) {
        return AnyMatrix(t.floats().data() + first_row * t.cols(), DType::f32, shape.rows(),
                         t.cols(), t.cols());
      };
      const Tensor lse = tensor(memory, DType::f32, 1, shape.rows() * heads);
      attention(context.state(), shape, part(qkv), out.any(), lse.floats());
      attention_backward(context.state(), shape, part(qkv), out.any(), lse.floats(), part(dout),
                         dqkv.any());
    };
    const Tensor out = tensor(memory, DType::f32, all.rows(), width);
    const Tensor dqkv = tensor(memory, DType::f32, all.rows(), 3 * width);
    run(all, 0, out, dqkv);
    const Tensor out_of_last = tensor(memory, DType::f32, length, width);
    const Tensor dqkv_of_last = tensor(memory, DType::f32, length, 3 * width);
    const std::int64_t last = all.rows() - length;
    run(one, last, out_of_last, dqkv_of_last);
    const auto expect_last = [&](const Tensor& whole, const Tensor& part) {
      const auto tail = whole.floats().last(part.floats().size());
      EXPECT_TRUE(std::equal(tail.begin(), tail.end(), part.floats().begin())) << describe(options);
    };
    expect_last(out, out_of_last);
    expect_last(dqkv, dqkv_of_last);

    // An embedding whose table is qkv, with its rows in another order.
    DeviceTokens tokens;
    for (std::int64_t r = 0; r < all.rows(); ++r)
      tokens.push_back(static_cast<std::int32_t>((r * 7 + 3) % all.rows()));
    embed(context.state(), tokens, {qkv.floats().data(), all.rows(), 3 * width}, {}, dqkv.any());
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto row = dqkv.floats().subspan(r * 3 * width, 3 * width);
      ASSERT_TRUE(std::equal(row.begin(), row.end(),
                             qkv.floats().begin() + std::int64_t{tokens[r]} * 3 * width))
          << describe(options);
    }
  }
}

// Large results of norms, SwiGLU and the gradient of an embedding have the bits of their rows
// computed alone. A row has five cache lines: four and one more.
TEST(ModelsReference, LargeResultsOfRowsAreThoseOfTheRows) {
  if (!on_cpu()) GTEST_SKIP() << "a test of caches";
  const auto l2 = std::max<std::int64_t>(static_cast<std::int64_t>(core::cpu_caches().l2_bytes),
                                         std::int64_t{1} << 20);
  constexpr std::int64_t cols = 80;
  const std::int64_t rows = l2 / (cols * 4) + 5;
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    ContextState& state = context.state();
    Memory memory(visible_memory(context));
    const Tensor x = filled(memory, DType::f32, rows, 2 * cols, 1);
    const Tensor gain = filled(memory, DType::f32, 1, cols, 2);
    const auto matrix = [](const Tensor& t, std::int64_t width, std::int64_t first,
                           std::int64_t count) {
      return AnyMatrix(t.floats().data() + first * width, DType::f32, count, width, width);
    };
    // The last `count` rows of each result, computed from the rows from `first` on.
    const auto results = [&](std::int64_t first, std::int64_t count) {
      const std::int64_t n = rows - first;
      std::vector<Tensor> out;
      for (int i = 0; i < 7; ++i)
        out.push_back(tensor(memory, DType::f32, n, i == 6 ? 2 * cols : cols));
      const Tensor mean = tensor(memory, DType::f32, 1, n), rstd = tensor(memory, DType::f32, 1, n);
      const Tensor dgain = tensor(memory, DType::f32, 1, cols),
                   dbias = tensor(memory, DType::f32, 1, cols);
      const AnyMatrix a = matrix(x, cols, first, n), b = matrix(x, cols, rows + first, n);
      rms_norm(state, {.x = a,
                       .add = b,
                       .sum = out[0].any(),
                       .gain = gain.floats(),
                       .y = out[1].any(),
                       .rstd = rstd.floats()});
      layer_norm(state, {.x = a,
                         .add = b,
                         .sum = out[2].any(),
                         .gain = gain.floats(),
                         .bias = gain.floats(),
                         .y = out[3].any(),
                         .mean = mean.floats(),
                         .rstd = rstd.floats()});
      layer_norm_backward(state, {.s = a,
                                  .gain = gain.floats(),
                                  .mean = mean.floats(),
                                  .rstd = rstd.floats(),
                                  .dy = b,
                                  .dx = out[4].any(),
                                  .dgain = dgain.floats(),
                                  .dbias = dbias.floats()});
      swiglu(state, matrix(x, 2 * cols, first, n), out[5].any());
      swiglu_backward(state, matrix(x, 2 * cols, first, n), b, out[6].any());
      std::vector<std::vector<float>> last;
      for (const Tensor& t : out) {
        const auto tail = t.floats().last(static_cast<std::size_t>(count * t.cols()));
        last.emplace_back(tail.begin(), tail.end());
      }
      return last;
    };
    EXPECT_EQ(results(0, 7), results(rows - 7, 7)) << describe(options);

    // The gradient of an embedding for tokens that occur once, twice, and not at all.
    const Tensor dtable = tensor(memory, DType::f32, rows, cols);
    const DeviceTokens tokens = {5, 9, 9, 2, static_cast<std::int32_t>(rows - 1), 2};
    const Tensor dy = filled(memory, DType::f32, 6, cols, 3);
    embed_backward(state, tokens, dy.any(), {dtable.floats().data(), rows, cols}, {}, false);
    std::vector<float> want(dtable.floats().size());
    for (std::size_t r = 0; r < tokens.size(); ++r)
      for (std::size_t c = 0; c < cols; ++c)
        want[static_cast<std::size_t>(tokens[r]) * cols + c] += dy.floats()[r * cols + c];
    EXPECT_TRUE(std::equal(want.begin(), want.end(), dtable.floats().begin())) << describe(options);
  }
}

TEST(ModelsGradient, Swiglu) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const std::int64_t hidden : {1, 19, 32}) {
      const Tensor gate_up = filled(memory, s.dtype, 3, 2 * hidden, 1, 4);
      const Tensor h = tensor(memory, s.dtype, 3, hidden);
      swiglu(s.context.state(), gate_up.any(), h.any());
      const Values input = values_of(gate_up);
      expect_near(values_of(h), reference::swiglu(input, hidden), tolerance_of(s.dtype), s.name);
      const Tensor dh = filled(memory, s.dtype, 3, hidden, 2);
      const Tensor dgate_up = tensor(memory, s.dtype, 3, 2 * hidden);
      swiglu_backward(s.context.state(), gate_up.any(), dh.any(), dgate_up.any());
      const Values want = gradient(
          [&](const Values& v) { return dot(reference::swiglu(v, hidden), values_of(dh)); }, input);
      expect_near(values_of(dgate_up), want, tolerance_of(s.dtype), s.name + " gradient");
    }
  });
}

TEST(ModelsGradient, SwigluOfLargeGates) {
  Context context(device_options());
  Memory memory(visible_memory(context));
  const Tensor gate_up = tensor(memory, DType::f32, 1, 4);
  const float values[] = {-500.0f, 500.0f, 2.0f, 3.0f};
  std::copy(values, values + 4, gate_up.floats().begin());
  const Tensor h = tensor(memory, DType::f32, 1, 2);
  swiglu(context.state(), gate_up.any(), h.any());
  EXPECT_NEAR(h.floats()[0], 0.0f, 1e-30);
  EXPECT_EQ(h.floats()[1], 1500.0f);
}

TEST(ModelsGradient, CrossEntropy) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const std::int64_t vocabulary : {1, 13, 64, 100}) {
      const Tensor logits = filled(memory, s.dtype, 5, vocabulary, 1, 6);
      const Values input = values_of(logits);
      DeviceTokens targets;
      for (std::int32_t r = 0; r < 5; ++r)
        targets.push_back(static_cast<std::int32_t>((r * 7) % vocabulary));
      const double want = reference::cross_entropy(input, targets);
      // An exponential in bf16 has a relative error of 3e-6, and so has the sum of them.
      const double error = s.dtype == DType::f32 ? 1e-6 : 4e-6;
      EXPECT_NEAR(cross_entropy(s.context.state(), logits.any(), targets, 5, false), want, error);
      EXPECT_EQ(values_of(logits), input);
      EXPECT_NEAR(cross_entropy(s.context.state(), logits.any(), targets, 5, true), want, error);
      const Values g =
          gradient([&](const Values& v) { return reference::cross_entropy(v, targets); }, input);
      for (std::size_t i = 0; i < g.size(); ++i)
        EXPECT_NEAR(values_of(logits)[i], g[i], tolerance_of(s.dtype) * 0.2) << s.name;
    }
  });
}

// Rows of several chunks of classes. Some chunks are nothing but -Inf, as masked classes have.
TEST(ModelsReference, CrossEntropyOfManyClasses) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    constexpr std::int64_t vocabulary = 2500;
    for (const std::int64_t masked : {0, 1500}) {
      const Tensor logits = filled(memory, s.dtype, 2, vocabulary, 1, 6);
      for (std::int64_t i = 0; i < masked; ++i)
        core::store_float(logits.any().data, s.dtype, i, -std::numeric_limits<float>::infinity());
      const Values input = values_of(logits);
      const DeviceTokens targets = {2000, 7};
      const double want = reference::cross_entropy(input, targets);
      EXPECT_NEAR(cross_entropy(s.context.state(), logits.any(), targets, 2, true), want, 1e-5)
          << s.name;
      Values gradient(input.size());
      for (std::size_t r = 0; r < 2; ++r) {
        double sum = 0;
        for (std::size_t c = 0; c < vocabulary; ++c)
          sum += std::exp(input[r * vocabulary + c]);
        for (std::size_t c = 0; c < vocabulary; ++c)
          gradient[r * vocabulary + c] = std::exp(input[r * vocabulary + c]) / sum / 2;
        gradient[r * vocabulary + static_cast<std::size_t>(targets[r])] -= 0.5;
      }
      expect_near(values_of(logits), gradient, tolerance_of(s.dtype), s.name);
    }
  });
}

TEST(ModelsGradient, Embedding) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    constexpr std::int64_t vocabulary = 7, width = 70, length = 3;
    const DeviceTokens tokens = {6, 0, 6, 1, 6, 2};
    const Tensor table = filled(memory, DType::f32, vocabulary, width, 1);
    const Tensor positions = filled(memory, DType::f32, length, width, 2);
    const Tensor y = tensor(memory, s.dtype, 6, width);
    embed(s.context.state(), tokens, {table.floats().data(), vocabulary, width},
          {positions.floats().data(), length, width}, y.any());
    const auto formula = [&](const Values& t, const Values& p) {
      Values out;
      for (std::size_t r = 0; r < tokens.size(); ++r)
        for (std::size_t c = 0; c < width; ++c)
          out.push_back(t[static_cast<std::size_t>(tokens[r]) * width + c] +
                        p[r % length * width + c]);
      return out;
    };
    const Values v_table = values_of(table), v_positions = values_of(positions);
    expect_near(values_of(y), formula(v_table, v_positions), tolerance_of(s.dtype), s.name);
    const Tensor dy = filled(memory, s.dtype, 6, width, 3);
    const Tensor dtable = tensor(memory, DType::f32, vocabulary, width);
    const Tensor dpositions = tensor(memory, DType::f32, length, width);
    embed_backward(s.context.state(), tokens, dy.any(), {dtable.floats().data(), vocabulary, width},
                   {dpositions.floats().data(), length, width}, false);
    const Values g = values_of(dy);
    expect_near(values_of(dtable),
                gradient([&](const Values& v) { return dot(formula(v, v_positions), g); }, v_table),
                1e-6, s.name);
    const Values once =
        gradient([&](const Values& v) { return dot(formula(v_table, v), g); }, v_positions);
    expect_near(values_of(dpositions), once, 1e-6, s.name);
    embed_backward(s.context.state(), tokens, dy.any(), {dtable.floats().data(), vocabulary, width},
                   {dpositions.floats().data(), length, width}, true);
    expect_near(values_of(dpositions), reference::sum(once, once), 1e-6, s.name);
  });
}

TEST(ModelsReference, DropoutIsTheGeneratorsOnEveryInstructionSet) {
  // Known answers of Philox from its authors (kat_vectors of Random123).
  const philox::Words zeros = philox::bits(0, {0, 0, 0, 0});
  EXPECT_EQ(zeros, (philox::Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const philox::Words ones = philox::bits(~std::uint64_t{0}, {~0u, ~0u, ~0u, ~0u});
  EXPECT_EQ(ones, (philox::Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    // The elements are blocks of 64 and a last one of 51. Some counters do not fit 32 bits.
    for (const std::int64_t first : {std::int64_t{128}, std::int64_t{1} << 36}) {
      const Tensor x = filled(memory, s.dtype, 7, 53, 1);
      const Values before = values_of(x);
      const Dropout args{.p = 0.25f, .key = 5, .stream = 6, .first = first};
      dropout(s.context.state(), args, x.any());
      const Values after = values_of(x);
      int dropped = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const bool kept =
            philox::element_bits(5, 6, static_cast<std::int64_t>(i) + first) >= (1u << 30);
        dropped += !kept;
        if (kept)
          EXPECT_NEAR(after[i], before[i] / 0.75, tolerance_of(s.dtype));
        else
          EXPECT_EQ(after[i], 0.0);
      }
      EXPECT_NEAR(dropped, 371 / 4, 40);
    }
  });
}

TEST(ModelsReference, Optimizers) {
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    Memory memory(visible_memory(context));
    constexpr std::int64_t n = 67;
    const Tensor w = filled(memory, DType::f32, 1, n, 1);
    const Tensor g = filled(memory, DType::f32, 1, n, 2);
    const Tensor first = filled(memory, DType::f32, 1, n, 3);
    const Tensor second = tensor(memory, DType::f32, 1, n);
    for (float& v : second.floats())
      v = std::fabs(v) * 1e-3f;
    const Tensor copy = tensor(memory, DType::bf16, 1, n);
    Values want = values_of(w), m = values_of(first), v = values_of(second);
    const Values gradients = values_of(g);
    const Update update{.value = w.floats().data(),
                        .gradient = g.floats().data(),
                        .first = first.floats().data(),
                        .second = second.floats().data(),
                        .copy = copy.values<bfloat16>().data(),
                        .size = n,
                        .weight_decay = 0.1f};
    adamw(context.state(),
          {.learning_rate = 0.01f,
           .beta1 = 0.9f,
           .beta2 = 0.99f,
           .epsilon = 1e-8f,
           .correction1 = 10.0f,
           .correction2 = 100.0f},
          std::span(&update, 1));
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * gradients[i];
      v[i] = 0.99 * v[i] + 0.01 * gradients[i] * gradients[i];
      want[i] = want[i] * (1 - 0.01 * 0.1) - 0.01 * 10 * m[i] / (std::sqrt(100 * v[i]) + 1e-8);
    }
    expect_near(values_of(w), want, 1e-6, "adamw");
    expect_near(values_of(copy), want, 0.004, "copy");

    want = values_of(w);
    Values velocity = values_of(first);
    for (const bool nesterov : {false, true}) {
      sgd(context.state(), {.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = nesterov},
          std::span(&update, 1));
      for (std::size_t i = 0; i < n; ++i) {
        const double d = gradients[i] + 0.1 * want[i];
        velocity[i] = 0.9 * velocity[i] + d;
        want[i] -= 0.1 * (nesterov ? d + 0.9 * velocity[i] : velocity[i]);
      }
      expect_near(values_of(w), want, 1e-6, "sgd");
    }
  }
}

}  // namespace
}  // namespace switchback::test
