// SPDX-License-Identifier: Apache-2.0
// Tests of models on a GPU: elementwise operations give the bits of the CPU, a decoder trains there
// as on the CPU, and a step can be captured in a graph.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "studies/models/decoder.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/optimizer.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;

// A fixture that compares a device with a CPU that has the same fused multiply-adds.
class ModelsOnADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "a test of devices; see --device";
  }
  static bool has_fused_multiply_add() {
#if defined(__x86_64__)
    return core::cpu_features().level() >= core::Isa::avx2;
#else
    return true;
#endif
  }
};

// The bytes that an operation left in its tensors.
using Bits = std::vector<std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const Tensor& t) {
  std::vector<std::byte> bytes(t.size_bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), t.any().data, bytes.size());
  return bytes;
}

// Calls f(context, memory, dtype) on the CPU and on the device. Both must give the same bits.
template <class F>
void expect_same_bits(const std::string& what, F&& f) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<Bits> all;
    for (const ContextOptions& options : {cpu_options(), device_options()}) {
      Context context(options);
      Memory memory(visible_memory(context));
      all.push_back(f(context, memory, dtype));
    }
    EXPECT_EQ(all[0], all[1]) << what << " " << dtype_name(dtype);
  }
}

TEST_F(ModelsOnADevice, ElementsHaveTheBitsOfTheCpu) {
  if (!has_fused_multiply_add()) GTEST_SKIP() << "this CPU has no fused multiply-add";
  constexpr std::int64_t rows = 70, cols = 37;
  expect_same_bits("embedding", [&](Context& c, Memory& memory, DType dtype) {
    const Tensor table = filled(memory, DType::f32, 11, cols, 1);
    const Tensor positions = filled(memory, DType::f32, 35, cols, 2);
    const Tensor dtable = filled(memory, DType::f32, 11, cols, 3);
    const Tensor dpositions = filled(memory, DType::f32, 35, cols, 4);
    const Tensor y = tensor(memory, dtype, rows, cols);
    DeviceTokens tokens;
    for (std::int64_t r = 0; r < rows; ++r)
      tokens.push_back(static_cast<std::int32_t>(r * r % 11));
    embed(c.state(), tokens, {table.floats().data(), 11, cols},
          {positions.floats().data(), 35, cols}, y.any());
    Bits bits = {bytes_of(y)};
    for (const bool accumulate : {true, false}) {
      embed_backward(c.state(), tokens, y.any(), {dtable.floats().data(), 11, cols},
                     {dpositions.floats().data(), 35, cols}, accumulate);
      bits.push_back(bytes_of(dtable));
      bits.push_back(bytes_of(dpositions));
    }
    return bits;
  });
  expect_same_bits("rope", [&](Context& c, Memory& memory, DType dtype) {
    const Tensor cosines = filled(memory, DType::f32, 35, 5, 1);
    const Tensor sines = filled(memory, DType::f32, 35, 5, 2);
    const Tensor qkv = filled(memory, dtype, rows, 3 * 3 * 10, 3);
    for (const bool inverse : {false, true})
      rope(c.state(), {3, 10, 35, cosines.floats(), sines.floats()}, qkv.any(), inverse);
    return Bits{bytes_of(qkv)};
  });
  expect_same_bits("swiglu", [&](Context& c, Memory& memory, DType dtype) {
    const Tensor gate_up = filled(memory, dtype, rows, 2 * cols, 1, 100);
    const Tensor dh = filled(memory, dtype, rows, cols, 2);
    const Tensor h = tensor(memory, dtype, rows, cols);
    const Tensor dgate_up = tensor(memory, dtype, rows, 2 * cols);
    swiglu(c.state(), gate_up.any(), h.any());
    swiglu_backward(c.state(), gate_up.any(), dh.any(), dgate_up.any());
    return Bits{bytes_of(h), bytes_of(dgate_up)};
  });
  expect_same_bits("dropout and sums", [&](Context& c, Memory& memory, DType dtype) {
    const Tensor x = filled(memory, dtype, rows, cols, 1);
    const Tensor y = filled(memory, dtype, rows, cols, 2);
    dropout(c.state(), {.p = 0.3f, .key = 5, .stream = std::uint64_t{7} << 40, .first = 128},
            x.any());
    add(c.state(), x.any(), y.any());
    return Bits{bytes_of(x), bytes_of(y)};
  });
  // The gradients of the norms' parameters are summed in the same order, over several blocks of
  // rows.
  expect_same_bits("gradients of norms", [&](Context& c, Memory& memory, DType dtype) {
    const Tensor s = filled(memory, dtype, rows, cols, 1);
    const Tensor dy = filled(memory, dtype, rows, cols, 2);
    const Tensor dx = filled(memory, dtype, rows, cols, 3);
    const Tensor gain = filled(memory, DType::f32, 1, cols, 4);
    const Tensor mean = filled(memory, DType::f32, 1, rows, 5);
    const Tensor rstd = filled(memory, DType::f32, 1, rows, 6);
    const Tensor dgain = filled(memory, DType::f32, 1, cols, 7);
    const Tensor dbias = filled(memory, DType::f32, 1, cols, 8);
    Bits bits;
    for (const bool accumulate : {true, false}) {
      rms_norm_backward(c.state(), {.s = s.any(),
                                    .gain = gain.floats(),
                                    .rstd = rstd.floats(),
                                    .dy = dy.any(),
                                    .dx = dx.any(),
                                    .dgain = dgain.floats(),
                                    .accumulate = accumulate});
      bits.push_back(bytes_of(dgain));
      layer_norm_backward(c.state(), {.s = s.any(),
                                      .gain = gain.floats(),
                                      .mean = mean.floats(),
                                      .rstd = rstd.floats(),
                                      .dy = dy.any(),
                                      .dx = dx.any(),
                                      .dgain = dgain.floats(),
                                      .dbias = dbias.floats(),
                                      .accumulate = accumulate});
      bits.push_back(bytes_of(dgain));
      bits.push_back(bytes_of(dbias));
    }
    return bits;
  });
  expect_same_bits("optimizers", [&](Context& c, Memory& memory, DType) {
    // The optimizers update more tensors than one launch can handle, among them an empty one and
    // one of several pieces.
    std::vector<Tensor> tensors;
    std::vector<Update> updates;
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t size = i == 3 ? 0 : i == 7 ? 9000 : 5 + i;
      const auto taken = [&](std::uint64_t seed) {
        tensors.push_back(filled(memory, DType::f32, 1, size, seed));
        return tensors.back().floats().data();
      };
      Update u{.value = taken(1), .gradient = taken(2), .first = taken(3), .second = taken(4)};
      for (float& v : tensors.back().floats())
        v *= v;
      tensors.push_back(tensor(memory, DType::bf16, 1, size));
      if (i % 2 == 0) u.copy = tensors.back().values<bfloat16>().data();
      u.size = size;
      u.weight_decay = 0.01f * static_cast<float>(i);
      updates.push_back(u);
    }
    adamw(c.state(),
          {.learning_rate = 0.01f,
           .beta1 = 0.9f,
           .beta2 = 0.99f,
           .epsilon = 1e-8f,
           .correction1 = 10.0f,
           .correction2 = 100.0f},
          updates);
    for (const bool nesterov : {false, true})
      sgd(c.state(),
          {.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = nesterov, .first_step = !nesterov},
          updates);
    Bits bits;
    for (const Tensor& t : tensors)
      bits.push_back(bytes_of(t));
    return bits;
  });
}

// A NaN, Inf or -Inf in a row of logits has the same effect on the CPU and on the device.
TEST_F(ModelsOnADevice, NonFiniteValuesStayVisible) {
  Context context(device_options());
  Memory memory(visible_memory(context));
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor logits = filled(memory, DType::f32, 3, 300, 1);
  logits.floats()[10] = std::numeric_limits<float>::quiet_NaN();
  logits.floats()[300] = infinity;
  logits.floats()[600] = -infinity;
  const DeviceTokens targets = {1, 2, 3};
  EXPECT_TRUE(std::isnan(cross_entropy(context.state(), logits.any(), targets, 3, true)));
  for (std::size_t i = 0; i < 600; ++i)
    ASSERT_TRUE(std::isnan(logits.floats()[i])) << i;
  EXPECT_EQ(logits.floats()[600], 0.0f);
  EXPECT_TRUE(std::isfinite(logits.floats()[601]));
}

struct Training {
  std::vector<double> losses;
  std::vector<Values> values;
};

Training trained(const ContextOptions& options, DType dtype, Mode mode, int steps) {
  Context context(options);
  Memory memory(context.state().runtime);  // the test cannot read this memory
  const Surroundings around{context, memory};
  Parameters parameters(context.state(), memory, 1);
  Decoder model(around, parameters,
                {.vocabulary = 50,
                 .width = 32,
                 .hidden = 48,
                 .layers = 2,
                 .heads = 2,
                 .context = 40,
                 .dtype = dtype,
                 .mode = mode});
  const auto optimizer = make_adamw(parameters, memory, {.learning_rate = 0.003f});
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t i = 0; i < 40; ++i) {
    tokens.push_back(static_cast<std::int32_t>(philox::element_bits(5, 1, i) % 50));
    targets.push_back(static_cast<std::int32_t>(philox::element_bits(6, 1, i) % 50));
  }
  Training result;
  Profile profile(context.state().runtime);
  model.set_profile(&profile);
  for (int step = 0; step < steps; ++step) {
    model.forward({tokens, 2, 20});
    result.losses.push_back(model.loss(targets));
    model.backward();
    optimizer->step(context.state());
    model.weights_updated();
  }
  EXPECT_EQ(profile.times_ms().at("attention: forward").size(),
            static_cast<std::size_t>(2 * steps));
  result.losses.push_back(model.evaluate({tokens, 2, 20}, targets));
  for (const Parameter& p : parameters.all()) {
    const std::vector<float> floats = floats_of(context.state(), p.value);
    result.values.emplace_back(floats.begin(), floats.end());
  }
  return result;
}

// The bounds: the first loss is computed from the same weights. In f32 it differs by less than 1e-5
// of itself: sums of some hundred terms are added in another order, logits are near 0, and the mean
// of the rows is in f64. In int8 a code at a rounding boundary may fall the other way, which
// changes one of 32 terms of a sum by a 127th of the row's largest value. bf16 rounds everything by
// 2^-8. Each step of AdamW moves a weight by up to its rate of 0.003, to either side if rounding
// decides the sign of a gradient near 0. After three steps such weights, which are few, differ by
// at most 0.02.
TEST_F(ModelsOnADevice, DecoderTrainsAsOnTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Mode mode : {Mode::standard, Mode::rowwise}) {
      if (on_emulated() && dtype == DType::bf16 && mode == Mode::standard) continue;
      const Training cpu = trained(cpu_options(), dtype, mode, 3);
      const Training device = trained(device_options(), dtype, mode, 3);
      const bool is_exact = dtype == DType::f32 && mode == Mode::standard;
      const std::string what = std::string(mode_name(mode)) + " " + std::string(dtype_name(dtype));
      EXPECT_NEAR(device.losses[0], cpu.losses[0], is_exact ? 4e-5 : 4e-3) << what;
      EXPECT_LT(cpu.losses[3], cpu.losses[0] - 0.05) << what;
      for (std::size_t i = 1; i < cpu.losses.size(); ++i)
        EXPECT_NEAR(device.losses[i], cpu.losses[i], is_exact ? 4e-4 : 2e-2) << what << " " << i;
      ASSERT_EQ(device.values.size(), cpu.values.size());
      for (std::size_t p = 0; p < cpu.values.size(); ++p)
        for (std::size_t i = 0; i < cpu.values[p].size(); ++i)
          ASSERT_NEAR(device.values[p][i], cpu.values[p][i], 0.02) << what << " " << p << " " << i;
    }
}

// The operations of a training step are captured in a graph, which is launched twice. The results
// are those of two steps that are called directly.
TEST_F(ModelsOnADevice, OperationsCanBeCaptured) {
  Context context(device_options());
  ContextState& state = context.state();
  Memory memory(visible_memory(context));
  constexpr std::int64_t rows = 20, width = 12, vocabulary = 9;
  const AttentionShape shape{.batch = 2, .length = 10, .heads = 2, .head_dim = 6};
  const Tensor table = filled(memory, DType::f32, vocabulary, width, 1);
  const Tensor gain = filled(memory, DType::f32, 1, width, 2);
  const Tensor qkv = filled(memory, DType::f32, rows, 3 * width, 3);
  const Tensor x = tensor(memory, DType::f32, rows, width),
               y = tensor(memory, DType::f32, rows, width);
  const Tensor rstd = tensor(memory, DType::f32, 1, rows),
               mean = tensor(memory, DType::f32, 1, rows);
  const Tensor out = tensor(memory, DType::f32, rows, width);
  const Tensor lse = tensor(memory, DType::f32, 1, 2 * rows);
  const Tensor h = tensor(memory, DType::f32, rows, width / 2);
  const Tensor loss = tensor(memory, DType::f32, 1, 2);  // one f64
  const Tensor dqkv = tensor(memory, DType::f32, rows, 3 * width);
  const Tensor dgate = tensor(memory, DType::f32, rows, width);
  const Tensor dgain = filled(memory, DType::f32, 1, width, 4),
               dbias = filled(memory, DType::f32, 1, width, 5);
  const Tensor dtable = filled(memory, DType::f32, vocabulary, width, 6);
  const Tensor first = filled(memory, DType::f32, vocabulary, width, 7);
  DeviceTokens tokens;
  for (std::int64_t r = 0; r < rows; ++r)
    tokens.push_back(static_cast<std::int32_t>(r % vocabulary));
  const auto step = [&] {
    embed(state, tokens, {table.floats().data(), vocabulary, width}, {}, x.any());
    rms_norm(state, {.x = x.any(), .gain = gain.floats(), .y = y.any(), .rstd = rstd.floats()});
    attention(state, shape, qkv.any(), out.any(), lse.floats());
    add(state, out.any(), y.any());
    swiglu(state, y.any(), h.any());
    swiglu_backward(state, y.any(), h.any(), dgate.any());
    layer_norm(state, {.x = y.any(),
                       .gain = gain.floats(),
                       .bias = gain.floats(),
                       .y = x.any(),
                       .mean = mean.floats(),
                       .rstd = rstd.floats()});
    dropout(state, {.p = 0.5f, .key = 1}, x.any());
    const AnyMatrix logits = x.any();
    queue_cross_entropy(state, logits, tokens, rows, true, loss.values<double>().data());
    layer_norm_backward(state, {.s = y.any(),
                                .gain = gain.floats(),
                                .mean = mean.floats(),
                                .rstd = rstd.floats(),
                                .dy = x.any(),
                                .dx = x.any(),  // in place
                                .dgain = dgain.floats(),
                                .dbias = dbias.floats(),
                                .accumulate = true});
    attention_backward(state, shape, qkv.any(), out.any(), lse.floats(), x.any(), dqkv.any());
    zero(state, out.any());
    rms_norm_backward(state, {.s = y.any(),
                              .gain = gain.floats(),
                              .rstd = rstd.floats(),
                              .dy = x.any(),
                              .dx = out.any(),
                              .dgain = dgain.floats(),
                              .accumulate = true});
    embed_backward(state, tokens, out.any(), {dtable.floats().data(), vocabulary, width}, {}, true);
    const Update update{.value = table.floats().data(),
                        .gradient = dtable.floats().data(),
                        .first = first.floats().data(),
                        .size = table.size()};
    sgd(state, {.learning_rate = 0.1f, .momentum = 0.9f}, std::span(&update, 1));
  };
  const auto results = [&] {
    context.synchronize();
    Bits bits;
    for (const Tensor* t : {&table, &dtable, &dgain, &dbias, &dqkv, &loss, &dgate})
      bits.push_back(bytes_of(*t));
    return bits;
  };
  const auto start = [&] {
    context.synchronize();
    fill(table, 1);
    fill(dgain, 4);
    fill(dbias, 5);
    fill(dtable, 6);
    fill(first, 7);
  };
  step();
  step();
  const Bits direct = results();
  start();
  state.runtime->begin_capture();
  step();
  const auto graph = state.runtime->end_capture();
  graph->launch();
  graph->launch();
  EXPECT_EQ(results(), direct);
}

}  // namespace
}  // namespace switchback::test
