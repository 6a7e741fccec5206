// SPDX-License-Identifier: Apache-2.0
// SwitchbackLinear: the bits of its results are the same on every kind of CPU. The hashes were made
// on x86; the operands are made without functions of a math library.
#include "linear/linear_support.hpp"

namespace switchback {
namespace {

using test::FloatMatrix;
using test::LayerCase;
using test::LayerTrial;
using test::Random;

// Fills a matrix with sums of four random integers, which are scaled by random powers of two.
void fill(FloatMatrix& m, Random& random, int exponent) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c) {
      std::int64_t sum = 0;
      for (int i = 0; i < 4; ++i)
        sum += random.below(1 << 20) - (1 << 19);
      const int shift = 20 - exponent - static_cast<int>(random.below(3));
      m.set(r, c, static_cast<float>(sum) / static_cast<float>(1 << shift));
    }
}

// Adds the elements of a matrix, as f32, to an FNV-1a hash.
void add_to_hash(std::uint64_t& hash, FloatMatrix& m) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c) {
      const auto bits = std::bit_cast<std::uint32_t>(m.get(r, c));
      for (int byte = 0; byte < 4; ++byte)
        hash = (hash ^ (bits >> (8 * byte) & 0xFF)) * 0x100000001B3u;
    }
}

// Adds the results of one step to a hash: y, dx and db, and dw in modes that can compute it in
// int8.
void add_step(std::uint64_t& hash, Context& context, const LayerCase& c, Rotation rotation) {
  LayerTrial t(c);
  Random random(c.seed);
  fill(t.x, random, 0);
  fill(t.w, random, -4);
  fill(t.bias, random, 0);
  fill(t.g, random, -7);
  LinearOptions options = t.options();
  options.rotation = rotation;
  const bool int8_dw = traits_of(c.mode).has_int8_dw();
  if (int8_dw) options.dw = WeightGradient::int8_block;
  SwitchbackLinear layer = t.make(context, options);
  t.forward(layer, Save::copy);
  t.backward(layer);
  add_to_hash(hash, t.y);
  add_to_hash(hash, t.dx);
  add_to_hash(hash, t.db);
  if (int8_dw) add_to_hash(hash, t.dw);
}

std::uint64_t hash_of(Context& context, Mode mode, DType dtype) {
  const LayerCase shapes[] = {
      {.m = 1, .k = 192, .n = 40}, {.m = 37, .k = 320, .n = 83}, {.m = 300, .k = 128, .n = 50}};
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (LayerCase c : shapes)
    for (const Rotation rotation : {Rotation::none, Rotation::hadamard_64}) {
      c.mode = mode;
      c.dtype = c.y = c.gradients = c.bias_dtype = dtype;
      add_step(hash, context, c, rotation);
    }
  return hash;
}

struct Known {
  Mode mode;
  DType dtype;
  std::uint64_t hash;
};
constexpr Known known[] = {
    {Mode::rowwise, DType::f32, 0xB980197C7E316D4Eu},
    {Mode::rowwise, DType::f16, 0x626D9E34E6E3BE64u},
    {Mode::rowwise, DType::bf16, 0x50D9A4F399E7918Fu},
    {Mode::rowwise_shared, DType::f32, 0x3A12D2FDCCA49819u},
    {Mode::rowwise_shared, DType::f16, 0x8CE0DC0EE6070F62u},
    {Mode::rowwise_shared, DType::bf16, 0x85C1CA935DEB9CB9u},
    {Mode::global, DType::f32, 0x3DDEFE9370B2F177u},
    {Mode::global, DType::f16, 0xAD6489FDEC54E22Au},
    {Mode::global, DType::bf16, 0xDA08C4A840555491u},
    {Mode::global_mem_efficient, DType::f32, 0x87C1C473B23B6053u},
    {Mode::global_mem_efficient, DType::f16, 0x154496F7A01DDFDEu},
    {Mode::global_mem_efficient, DType::bf16, 0xFAE0F54CA6FFB111u},
};

TEST(LinearBits, AreThoseOfEveryOtherCpu) {
  for (const auto& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const auto& [mode, dtype, hash] : known)
      EXPECT_EQ(hash_of(context, mode, dtype), hash) << mode_name(mode) << " " << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace switchback
