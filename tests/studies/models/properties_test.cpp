// SPDX-License-Identifier: Apache-2.0
// Tests of properties that a decoder has for all numbers: earlier tokens do not depend on later
// ones, sequences of a batch do not affect each other, bits do not depend on threads, and a step
// that has run before allocates no memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "studies/models/decoder.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/operations.hpp"
#include "studies/models/optimizer.hpp"
#include "studies/models/support.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::test {
namespace {

using namespace models;

class ModelsDecoder : public testing::Test {
 protected:
  static DecoderOptions small(Mode mode, DType dtype = DType::f32) {
    return {.vocabulary = 50,
            .width = 32,
            .hidden = 48,
            .layers = 2,
            .heads = 2,
            .context = 80,
            .dtype = dtype,
            .mode = mode};
  }
  static Context small_context() {
    ContextOptions options = device_options();
    if (on_cpu()) options.threads = 2;
    return Context(options);
  }

  Context context = small_context();
  Memory memory{visible_memory(context)};
  const Surroundings around{context, memory};
  Parameters parameters{context.state(), memory, 1};
  const std::vector<std::int32_t> tokens = random_tokens(140, 50, 5);
};

// The bytes of some rows.
std::span<const std::byte> bytes_of(const Tensor& t, std::int64_t row, std::int64_t rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(t.cols()) * dtype_size_bytes(t.dtype());
  return std::span(static_cast<const std::byte*>(t.any().data), t.size_bytes())
      .subspan(static_cast<std::size_t>(row) * row_bytes,
               static_cast<std::size_t>(rows) * row_bytes);
}
bool same_bits(const Tensor& a, std::int64_t row_a, const Tensor& b, std::int64_t row_b,
               std::int64_t rows) {
  return std::ranges::equal(bytes_of(a, row_a, rows), bytes_of(b, row_b, rows));
}

// Activations have a scale per row, so the bits of a token's logits depend only on the tokens that
// it sees.
TEST_F(ModelsDecoder, IsCausalAndItsSequencesAreIndependent) {
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    Decoder model(around, parameters, small(mode));
    const Tensor before = model.infer({tokens, 2, 70});
    std::vector<std::int32_t> others = tokens;
    for (std::size_t i = 60; i < 140; ++i)
      others[i] = (others[i] + 1) % 50;
    const Tensor after = model.infer({others, 2, 70});
    EXPECT_TRUE(same_bits(before, 0, after, 0, 60)) << mode_name(mode);
    EXPECT_FALSE(same_bits(before, 60, after, 60, 1));
    const Tensor alone = model.infer({Tokens(others).subspan(70), 1, 70});
    EXPECT_TRUE(same_bits(alone, 0, after, 70, 70)) << mode_name(mode);
  }
}

TEST_F(ModelsDecoder, TrainsInEveryModeAndType) {
  const int steps = on_emulated() ? 4 : 25;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global}) {
      SCOPED_TRACE(std::string(mode_name(mode)) + " " + std::string(dtype_name(dtype)));
      Memory own(context.state().runtime);  // on a device, the test cannot read this memory
      Parameters trained(context.state(), own, 1);
      Decoder model({context, own}, trained, small(mode, dtype));
      const auto optimizer = make_adamw(trained, own, {.learning_rate = 0.01f});
      const Decoder::Batch batch = {Tokens(tokens).first(64), 2, 32};
      const Tokens targets = Tokens(tokens).subspan(1, 64);
      const double first = model.evaluate(batch, targets);
      EXPECT_NEAR(first, std::log(50.0), 0.1);
      double last = 0;
      std::size_t taken = 0, from_system = 0;
      for (int step = 0; step < steps; ++step) {
        model.forward(batch);
        last = model.loss(targets);
        if (step == 0) {
          EXPECT_EQ(last, first);  // the forward for training is that of inference
        }
        model.backward();
        optimizer->step(context.state());
        model.weights_updated();
        if (step == 1) {
          taken = own.now().total();
          from_system = own.taken_from_system();
        }
      }
      EXPECT_EQ(own.now().total(), taken);
      EXPECT_EQ(own.taken_from_system(), from_system);
      EXPECT_LT(last, (on_emulated() ? 0.98 : 0.5) * first);
    }
}

TEST_F(ModelsDecoder, SharesParametersAndTheirFile) {
  Decoder model(around, parameters, small(Mode::standard));
  EXPECT_EQ(parameters.count(), small(Mode::standard).parameters());
  const std::size_t bytes = memory.now()[MemoryClass::grad];
  Decoder other(around, parameters, small(Mode::rowwise));
  EXPECT_EQ(memory.now()[MemoryClass::grad], bytes);

  const TemporaryDirectory directory;
  const std::string file = directory / "model";
  parameters.save(file);
  Parameters again(context.state(), memory, 2);
  Decoder third(around, again, small(Mode::standard));
  const Decoder::Batch batch = {Tokens(tokens).first(20), 1, 20};
  EXPECT_FALSE(same_bits(third.infer(batch), 0, model.infer(batch), 0, 20));
  again.load(file);
  third.weights_updated();
  EXPECT_TRUE(same_bits(third.infer(batch), 0, model.infer(batch), 0, 20));

  Parameters larger(context.state(), memory, 1);
  DecoderOptions wide = small(Mode::standard);
  wide.hidden = 52;
  Decoder fourth(around, larger, wide);
  const std::string message = message_of([&] { larger.load(file); });
  EXPECT_NE(message.find("layers.0.gate_up.weight is 96x32, not 104x32"), std::string::npos)
      << message;
  EXPECT_THROW(larger.load(directory / "none"), Error);
}

TEST_F(ModelsDecoder, Rejections) {
  DecoderOptions odd = small(Mode::standard);
  odd.heads = 3;
  EXPECT_EQ(message_of([&] { Decoder(around, parameters, odd); }),
            "decoder: width 32 with 3 heads; it must be a multiple of twice the heads");
  Decoder model(around, parameters, small(Mode::standard));
  const std::vector<std::int32_t> wrong(81, 50);
  const auto infer = [&](std::int64_t given, std::int64_t length) {
    return message_of([&] {
      model.infer({Tokens(wrong).first(static_cast<std::size_t>(given)), 1, length});
    });
  };
  EXPECT_EQ(infer(81, 81), "decoder: sequences of 81 tokens; they must have from 1 to 80");
  EXPECT_EQ(infer(81, 80), "model: tokens has 81 elements; it must have 80");
  EXPECT_EQ(infer(3, 3), "model: tokens has 50; tokens must be from 0 to 49");
  EXPECT_EQ(message_of([&] { model.backward(); }), "decoder: backward must be called after loss");
}

// There are several tasks, which are divided unevenly among the threads.
TEST(ModelsOperations, BitsDoNotDependOnThreads) {
  if (!on_cpu()) GTEST_SKIP() << "a test of threads";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::map<std::string, Operations::Bits> of_isa;
    for (const ContextOptions& options : all_contexts()) {
      Context context(options);
      Memory memory;
      const Operations operations(context.state(), memory, dtype,
                                  {.batch = 1, .length = 530, .heads = 3, .head_dim = 16});
      operations.run();
      const auto [first, is_first] = of_isa.emplace(options.isa, operations.results());
      EXPECT_TRUE(is_first || first->second == operations.results()) << describe(options);
    }
  }
}

}  // namespace
}  // namespace switchback::test
