// SPDX-License-Identifier: Apache-2.0
// Tests of properties that a decoder has for all numbers: earlier tokens do not depend on later
// ones, sequences of a batch do not affect each other, bits do not depend on threads, and a step
// that has run before allocates no memory.
#include <gtest/gtest.h>

#include <cstring>

#include "studies/models/decoder.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/optimizer.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;

DecoderOptions small(Mode mode, DType dtype = DType::f32) {
  return {.vocabulary = 50,
          .width = 32,
          .hidden = 48,
          .layers = 2,
          .heads = 2,
          .context = 80,
          .dtype = dtype,
          .mode = mode};
}

std::vector<std::int32_t> tokens_of(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(philox::element_bits(seed, 1, i) % 50));
  return tokens;
}

Context with_threads(int threads) {
  ContextOptions options = device_options();
  if (on_cpu()) options.threads = threads;
  return Context(options);
}

bool same_bits(const Tensor& a, std::int64_t row_a, const Tensor& b, std::int64_t row_b,
               std::int64_t rows) {
  const auto width = static_cast<std::size_t>(a.cols()) * dtype_size_bytes(a.dtype());
  return std::memcmp(
             static_cast<const std::byte*>(a.any().data) + static_cast<std::size_t>(row_a) * width,
             static_cast<const std::byte*>(b.any().data) + static_cast<std::size_t>(row_b) * width,
             static_cast<std::size_t>(rows) * width) == 0;
}

// Activations have a scale per row, so the bits of a token's logits depend only on the tokens that
// it sees.
TEST(ModelsDecoder, IsCausalAndItsSequencesAreIndependent) {
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    Context context = with_threads(2);
    Memory memory(visible_memory(context));
    const Surroundings around{context, memory};
    Parameters parameters(context.state(), memory, 1);
    Decoder model(around, parameters, small(mode));
    std::vector<std::int32_t> tokens = tokens_of(2 * 70, 5);
    const Tensor before = model.infer({tokens, 2, 70});
    for (std::size_t i = 60; i < 140; ++i)
      tokens[i] = (tokens[i] + 1) % 50;
    const Tensor after = model.infer({tokens, 2, 70});
    EXPECT_TRUE(same_bits(before, 0, after, 0, 60)) << mode_name(mode);
    EXPECT_FALSE(same_bits(before, 60, after, 60, 1));
    const Tensor alone = model.infer({Tokens(tokens).subspan(70), 1, 70});
    EXPECT_TRUE(same_bits(alone, 0, after, 70, 70)) << mode_name(mode);
  }
}

TEST(ModelsDecoder, ForwardForTrainingIsInference) {
  Context context = with_threads(2);
  Memory memory(visible_memory(context));
  const Surroundings around{context, memory};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Parameters of_type(context.state(), memory, 1);
    Decoder model(around, of_type, small(Mode::rowwise, dtype));
    const std::vector<std::int32_t> tokens = tokens_of(40, 5), targets = tokens_of(40, 6);
    const double inferred = model.evaluate({tokens, 2, 20}, targets);
    model.forward({tokens, 2, 20});
    EXPECT_EQ(model.loss(targets), inferred);
    model.backward();
  }
}

// The gradients after some steps have the same bits with different numbers of threads.
TEST(ModelsDecoder, BitsDoNotDependOnThreads) {
  std::vector<Values> all;
  for (const int threads : {1, 3}) {
    Context context = with_threads(threads);
    Memory memory(visible_memory(context));
    const Surroundings around{context, memory};
    Parameters parameters(context.state(), memory, 1);
    Decoder model(around, parameters, small(Mode::rowwise));
    const std::vector<std::int32_t> tokens = tokens_of(150, 5), targets = tokens_of(150, 6);
    Tensor logits = model.infer({tokens, 2, 75});
    Values values = values_of(logits);
    // dW is a floating point product, whose engine may add in another order with other threads. So
    // only the layers of switchback::models themselves are compared.
    const AttentionShape shape{.batch = 2, .length = 75, .heads = 2, .head_dim = 16};
    const Tensor qkv = filled(memory, DType::f32, 150, 96, 3);
    const Tensor out = tensor(memory, DType::f32, 150, 32),
                 dqkv = tensor(memory, DType::f32, 150, 96);
    const Tensor lse = tensor(memory, DType::f32, 1, 300);
    attention(context.state(), shape, qkv.any(), out.any(), lse.floats());
    attention_backward(context.state(), shape, qkv.any(), out.any(), lse.floats(), out.any(),
                       dqkv.any());
    const Tensor gain = filled(memory, DType::f32, 1, 32, 8),
                 dgain = tensor(memory, DType::f32, 1, 32);
    const Tensor dbias = tensor(memory, DType::f32, 1, 32),
                 rstd = tensor(memory, DType::f32, 1, 150);
    const Tensor mean = tensor(memory, DType::f32, 1, 150), y = tensor(memory, DType::f32, 150, 32);
    layer_norm(context.state(), {.x = out.any(),
                                 .gain = gain.floats(),
                                 .bias = gain.floats(),
                                 .y = y.any(),
                                 .mean = mean.floats(),
                                 .rstd = rstd.floats()});
    layer_norm_backward(context.state(), {.s = out.any(),
                                          .gain = gain.floats(),
                                          .mean = mean.floats(),
                                          .rstd = rstd.floats(),
                                          .dy = out.any(),
                                          .dx = y.any(),
                                          .dgain = dgain.floats(),
                                          .dbias = dbias.floats()});
    for (const Tensor* t : {&dqkv, &y, &dgain, &dbias}) {
      const Values more = values_of(*t);
      values.insert(values.end(), more.begin(), more.end());
    }
    // Attention in bf16, with several tiles of queries and keys, and tasks of 256 queries.
    const AttentionShape long_one{.batch = 2, .length = 300, .heads = 2, .head_dim = 16};
    const Tensor qkv16 = filled(memory, DType::bf16, 600, 96, 3);
    const Tensor out16 = tensor(memory, DType::bf16, 600, 32),
                 dqkv16 = tensor(memory, DType::bf16, 600, 96);
    const Tensor lse16 = tensor(memory, DType::f32, 1, 1200);
    attention(context.state(), long_one, qkv16.any(), out16.any(), lse16.floats());
    attention_backward(context.state(), long_one, qkv16.any(), out16.any(), lse16.floats(),
                       out16.any(), dqkv16.any());
    for (const Tensor* t : {&out16, &lse16, &dqkv16}) {
      const Values more = values_of(*t);
      values.insert(values.end(), more.begin(), more.end());
    }
    const DeviceTokens on_device(targets.begin(), targets.end());
    values.push_back(cross_entropy(context.state(), logits.any(), on_device, 150, true));
    all.push_back(values);
  }
  EXPECT_EQ(all[0], all[1]);
}

TEST(ModelsDecoder, TrainsInEveryModeAndType) {
  const int steps = on_emulated() ? 4 : 25;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global}) {
      Context context = with_threads(2);
      Memory memory(context.state().runtime);
      const Surroundings around{context, memory};
      Parameters parameters(context.state(), memory, 1);
      Decoder model(around, parameters, small(mode, dtype));
      const auto optimizer = make_adamw(parameters, memory, {.learning_rate = 0.01f});
      const std::vector<std::int32_t> tokens = tokens_of(64, 5);
      std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
      targets.push_back(0);
      double first = 0, last = 0;
      std::size_t taken = 0, from_system = 0;
      for (int step = 0; step < steps; ++step) {
        model.forward({tokens, 2, 32});
        last = model.loss(targets);
        if (step == 0) first = last;
        model.backward();
        optimizer->step(context.state());
        model.weights_updated();
        if (step == 1) {
          taken = memory.now().total();
          from_system = memory.taken_from_system();
          memory.reset_peak();
        }
      }
      EXPECT_EQ(memory.now().total(), taken);
      EXPECT_EQ(memory.taken_from_system(), from_system);
      EXPECT_LT(last, (on_emulated() ? 0.98 : 0.5) * first)
          << mode_name(mode) << " " << dtype_name(dtype);
      EXPECT_NEAR(first, std::log(50.0), 0.1);
    }
}

TEST(ModelsDecoder, SharesParametersAndTheirFile) {
  Context context = with_threads(2);
  Memory memory(visible_memory(context));
  const Surroundings around{context, memory};
  Parameters parameters(context.state(), memory, 1);
  Decoder model(around, parameters, small(Mode::standard));
  EXPECT_EQ(parameters.count(), small(Mode::standard).parameters());
  const std::size_t bytes = memory.now()[MemoryClass::grad];
  Decoder other(around, parameters, small(Mode::rowwise));
  EXPECT_EQ(memory.now()[MemoryClass::grad], bytes);

  const std::string file = testing::TempDir() + "models_test.model";
  parameters.save(file);
  Parameters again(context.state(), memory, 2);
  Decoder third(around, again, small(Mode::standard));
  const std::vector<std::int32_t> tokens = tokens_of(20, 5);
  EXPECT_FALSE(same_bits(third.infer({tokens, 1, 20}), 0, model.infer({tokens, 1, 20}), 0, 20));
  again.load(file);
  third.weights_updated();
  EXPECT_TRUE(same_bits(third.infer({tokens, 1, 20}), 0, model.infer({tokens, 1, 20}), 0, 20));

  Parameters larger(context.state(), memory, 1);
  DecoderOptions wide = small(Mode::standard);
  wide.hidden = 52;
  Decoder fourth(around, larger, wide);
  try {
    larger.load(file);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layers.0.gate_up.weight is 96x32, not 104x32"),
              std::string::npos)
        << error.what();
  }
  std::remove(file.c_str());
  EXPECT_THROW(larger.load(file), Error);
}

TEST(ModelsDecoder, Rejections) {
  Context context = with_threads(1);
  Memory memory(visible_memory(context));
  const Surroundings around{context, memory};
  Parameters parameters(context.state(), memory, 1);
  const auto message_of = [&](const auto& f) -> std::string {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  DecoderOptions odd = small(Mode::standard);
  odd.heads = 3;
  EXPECT_EQ(message_of([&] { Decoder(around, parameters, odd); }),
            "decoder: width 32 with 3 heads; it must be a multiple of twice the heads");
  Decoder model(around, parameters, small(Mode::standard));
  const std::vector<std::int32_t> tokens(81, 50);
  EXPECT_EQ(message_of([&] {
              model.infer({tokens, 1, 81});
            }),
            "decoder: sequences of 81 tokens; they must have from 1 to 80");
  EXPECT_EQ(message_of([&] {
              model.infer({tokens, 1, 80});
            }),
            "model: tokens has 81 elements; it must have 80");
  EXPECT_EQ(message_of([&] {
              model.infer({Tokens(tokens).first(3), 1, 3});
            }),
            "model: tokens has 50; tokens must be from 0 to 49");
  EXPECT_EQ(message_of([&] { model.backward(); }), "decoder: backward must be called after loss");
}

using namespace models;

TEST(ModelsMemory, CountsByClassAndRemembersThePeak) {
  Memory memory;
  Tensor a = memory.take(MemoryClass::param, DType::f32, 3, 5);
  Tensor b = memory.take(MemoryClass::saved, DType::bf16, 10, 10);
  EXPECT_EQ(memory.now()[MemoryClass::param], 60u);
  EXPECT_EQ(memory.now()[MemoryClass::saved], 200u);
  b.set_class(MemoryClass::workspace);
  EXPECT_EQ(memory.now()[MemoryClass::saved], 0u);
  EXPECT_EQ(memory.now()[MemoryClass::workspace], 200u);
  b.reset();
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(memory.now().total(), 60u);
  EXPECT_EQ(memory.peak().total(), 260u);
  EXPECT_EQ(memory.peak()[MemoryClass::saved], 200u);
  memory.set_held_elsewhere(MemoryClass::int8_weights, 1000);
  memory.set_held_elsewhere(MemoryClass::int8_weights, 900);
  EXPECT_EQ(memory.now()[MemoryClass::int8_weights], 900u);
  EXPECT_EQ(memory.peak().total(), 1060u);
  memory.reset_peak();
  EXPECT_EQ(memory.peak().total(), 960u);
  Tensor moved = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT: moved from
  moved = Tensor();
  EXPECT_EQ(memory.now().total(), 900u);
}

TEST(ModelsMemory, KeepsFreedMemoryForTheNextTensorOfItsSize) {
  Memory memory;
  Tensor a = memory.take(MemoryClass::saved, DType::f32, 100, 1000);
  const void* const data = a.any().data;
  a.reset();
  const Tensor small = memory.take(MemoryClass::saved, DType::f32, 10, 10);
  EXPECT_NE(small.any().data, data);
  const Tensor again = memory.take(MemoryClass::workspace, DType::f32, 1000, 100);
  EXPECT_EQ(again.any().data, data);
}

// Blocks of every size are used again, although the system gives large ones in whole huge pages.
TEST(ModelsMemory, KeepsBlocksOfEverySize) {
  Memory memory;
  for (std::int64_t rows = 1; rows < 6000; rows += rows / 3 + 1) {
    memory.take(MemoryClass::saved, DType::f32, rows, 768).reset();
    const std::size_t taken = memory.taken_from_system();
    memory.take(MemoryClass::saved, DType::f32, rows, 768).reset();
    EXPECT_EQ(memory.taken_from_system(), taken) << rows;
  }
}

}  // namespace
}  // namespace switchback::test
