// SPDX-License-Identifier: Apache-2.0
// Tests of every layer's forward against its formula in f64, and of its gradients against central
// differences of that formula, on every instruction set, with one thread and several.
#include "studies/models/kernels.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "studies/models/cpu/attention_bf16.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;
using reference::dot;
using reference::gradient;

TEST(ModelsGradient, Norms) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const NormKind kind : norm_kinds)
      for (const auto& [rows, cols] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 37}, {70, 16}}) {
        const bool is_layer_norm = kind == NormKind::layer_norm;
        if (is_layer_norm && cols == 1) continue;  // its results are the bias and zeros
        const Norm norm(memory, kind, s.dtype, rows, cols);
        const std::string what = s.name + (is_layer_norm ? " layer norm " : " rms norm ");
        const double tolerance = tolerance_of(s.dtype);
        norm.forward(s.context.state());
        expect_near(values_of(norm.sum), reference::sum(values_of(norm.x), values_of(norm.add)),
                    tolerance, what + "sum");
        const Values sum = values_of(norm.sum), gain = values_of(norm.gain);
        const Values bias = values_of(norm.bias), dy = values_of(norm.dy);
        const auto formula = [&, c = cols](const Values& of, const Values& g, const Values& b) {
          return is_layer_norm ? reference::layer_norm(of, c, g, b) : reference::rms_norm(of, c, g);
        };
        expect_near(values_of(norm.y), formula(sum, gain, bias), tolerance, what + "y");

        const Values dx_before = values_of(norm.dx);
        const auto loss = [&](const Values& of, const Values& g, const Values& b) {
          return dot(formula(of, g, b), dy);
        };
        const Values dx = gradient([&](const Values& v) { return loss(v, gain, bias); }, sum);
        const Values dgain = gradient([&](const Values& v) { return loss(sum, v, bias); }, gain);
        const Values dbias = gradient([&](const Values& v) { return loss(sum, gain, v); }, bias);
        norm.backward(s.context.state());
        expect_near(values_of(norm.dx), is_layer_norm ? dx : reference::sum(dx_before, dx),
                    tolerance, what + "dx");
        expect_near(values_of(norm.dgain), dgain, 1e-5, what + "dgain");
        norm.backward(s.context.state(), true);
        expect_near(values_of(norm.dgain), reference::sum(dgain, dgain), 1e-5, what + "dgain");
        if (is_layer_norm) {
          expect_near(values_of(norm.dbias), reference::sum(dbias, dbias), 1e-5, what + "dbias");
        }
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
      // The gradient of a rotation is the reverse rotation.
      expect_near(formula(values_of(g)), dy, tolerance_of(s.dtype), s.name + " gradient");
    }
  });
}

// Whether a sequence takes too long here. Accesses out of bounds happen at the edges of tiles.
bool is_too_long(std::int64_t length) {
  return length > 80 && under_address_sanitizer && on_emulated();
}

// Lengths around the tiles of every kernel (32, 64 and 256), around half of them and around the
// vectors and rows of register tiles in them. The head widths are not multiples of a vector or of a
// pair. Products of bf16 round the weights too, each to 2^-8 of itself and at random, so that sums
// of weighted values err less than the rounding of a result.
TEST(ModelsReference, Attention) {
  for (const auto& [length, dim] : {std::pair<std::int64_t, std::int64_t>{1, 3},
                                    {2, 16},
                                    {7, 33},
                                    {15, 32},
                                    {17, 5},
                                    {31, 32},
                                    {33, 2},
                                    {63, 80},
                                    {64, 20},
                                    {65, 18},
                                    {129, 64},
                                    {256, 8},
                                    {257, 31},
                                    {289, 32}}) {
    if (is_too_long(length)) continue;
    const AttentionShape shape{.batch = 2, .length = length, .heads = 2, .head_dim = dim};
    std::map<DType, std::pair<Values, Values>> wanted;  // the output and the gradient
    for_all_settings([&](const Setting& s) {
      Memory memory(visible_memory(s.context));
      const AttentionRun run(memory, s.dtype, shape);
      run.forward(s.context.state());
      run.backward(s.context.state());
      auto& [out, dqkv] = wanted[s.dtype];
      if (out.empty()) {
        const Values qkv = values_of(run.qkv), dout = values_of(run.dout);
        out = reference::attention(qkv, 2, shape.length, 2, shape.head_dim);
        dqkv = reference::attention_gradient(qkv, dout, 2, shape.length, 2, shape.head_dim);
      }
      const std::string what = s.name + " length " + std::to_string(shape.length);
      expect_near(values_of(run.out), out, tolerance_of(s.dtype), what);
      expect_near(values_of(run.dqkv), dqkv, tolerance_of(s.dtype), what + " gradient");
    });
  }
}

// Old data in scratch memory reach no result, although a product on the diagonal does not write all
// parts of a block.
TEST(ModelsReference, AttentionReadsNoStaleScratch) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    Context fresh(s.options);
    for (const auto& [length, dim] :
         {std::pair<std::int64_t, std::int64_t>{1, 3}, {33, 32}, {100, 40}, {289, 16}}) {
      if (is_too_long(length)) continue;
      const AttentionShape shape{.batch = 1, .length = length, .heads = 3, .head_dim = dim};
      const AttentionRun spoiled(memory, s.dtype, shape, std::numeric_limits<double>::quiet_NaN());
      spoiled.forward(s.context.state());
      spoiled.backward(s.context.state());
      const AttentionRun run(memory, s.dtype, shape), want(memory, s.dtype, shape);
      for (const auto& [attention, context] : {std::pair(&run, &s.context), {&want, &fresh}}) {
        attention->forward(context->state());
        attention->backward(context->state());
        context->synchronize();
      }
      const std::string what = s.name + " length " + std::to_string(length);
      EXPECT_EQ(values_of(run.out), values_of(want.out)) << what;
      EXPECT_EQ(values_of(run.dqkv), values_of(want.dqkv)) << what;
    }
  });
}

TEST(Bf16Attention, KernelsAreThoseOfTheInstructionSet) {
  for (const ContextOptions& options : isa_contexts()) {
    Context context(options);
    const core::CpuFeatures& features = context.state().features;
    EXPECT_EQ(bf16::kernels_for(context.state(), DType::f32), nullptr) << describe(options);
    const bf16::Kernels* const kernels = bf16::kernels_for(context.state(), DType::bf16);
    if (features.amx_bf16 && bf16::kernels_of_amx() != nullptr) {
      EXPECT_EQ(kernels, bf16::kernels_of_amx()) << describe(options);
    } else {
      // Every compiler that can build the project knows AVX-512 BF16, so there are kernels.
      EXPECT_EQ(kernels != nullptr, features.avx512_bf16) << describe(options);
    }
  }
}

// Scores that differ by hundreds, so that weights vanish and the largest score moves from tile to
// tile. Then a NaN in a key, which only its own query and later ones may see.
TEST(ModelsReference, AttentionOfLargeScoresAndNaN) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const AttentionRun run(memory, s.dtype, {.batch = 1, .length = 150, .heads = 1, .head_dim = 16},
                           12);
    run.forward(s.context.state());
    // A score of some hundreds is rounded to 2^-24 of itself. Its weight has a relative error as
    // large as the absolute error of the score.
    expect_near(values_of(run.out), reference::attention(values_of(run.qkv), 1, 150, 1, 16),
                s.dtype == DType::f32 ? 2e-4 : 0.02, s.name);
    const Values before = values_of(run.out);
    core::store_float(run.qkv.any().data, s.dtype, 70 * 48 + 16,  // a key
                      std::numeric_limits<float>::quiet_NaN());
    run.forward(s.context.state());
    const Values after = values_of(run.out);
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
    const AttentionRun run(memory, s.dtype,
                           {.batch = 1, .length = 130, .heads = 1, .head_dim = dim});
    run.forward(s.context.state());
    const Values before = values_of(run.out);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      core::store_float(run.qkv.any().data, s.dtype, token * 3 * dim + 2 * dim, value);
      run.forward(s.context.state());
      const Values after = values_of(run.out);
      for (std::size_t i = 0; i < after.size(); ++i)
        if (i % dim != 0 || i / dim + 31 < token) {
          ASSERT_EQ(after[i], before[i]) << s.name << " " << value << " " << i;
        } else if (i / dim >= token) {
          ASSERT_FALSE(std::isfinite(after[i])) << s.name << " " << value << " " << i;
        }
    }
  });
}

TEST(ModelsGradient, Swiglu) {
  for_all_settings([](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const std::int64_t hidden : {1, 19, 32, 33}) {
      const Tensor gate_up = filled(memory, s.dtype, 3, 2 * hidden, 1, 4);
      if (hidden == 33) {  // gates whose exponentials are Inf and 0
        core::store_float(gate_up.any().data, s.dtype, 0, -500.0f);
        core::store_float(gate_up.any().data, s.dtype, 2 * hidden, 500.0f);
      }
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
    // The elements are blocks of 64 and a last one of 51. Some counters do not fit 32 bits. A
    // dropped NaN becomes 0.
    for (const std::int64_t first : {std::int64_t{128}, std::int64_t{1} << 36}) {
      const Tensor x = filled(memory, s.dtype, 7, 53, 1);
      const auto is_kept = [&](std::int64_t i) {
        return philox::element_bits(5, 6, i + first) >= (1u << 30);
      };
      std::int64_t some_dropped = 0;
      while (is_kept(some_dropped))
        ++some_dropped;
      core::store_float(x.any().data, s.dtype, some_dropped,
                        std::numeric_limits<float>::quiet_NaN());
      const Values before = values_of(x);
      const Dropout args{.p = 0.25f, .key = 5, .stream = 6, .first = first};
      dropout(s.context.state(), args, x.any());
      const Values after = values_of(x);
      int dropped = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const bool kept = is_kept(static_cast<std::int64_t>(i));
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
    const Tensor second = filled(memory, DType::f32, 1, n, 4, 1000);
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
