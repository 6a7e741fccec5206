// SPDX-License-Identifier: Apache-2.0
// Tests that bf16 results are rounded to nearest even, and have a single NaN, on every instruction
// set, by any instruction, with ordinary and with non-temporal stores.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "studies/models/kernels.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;

// The bits of test value i, an f32. The values have all signs, exponents and bits that a bf16
// keeps, each with sixteen patterns of the lower bits: none, the smallest, those around a half, and
// all. Neighbouring values are alike, so that some cache lines have no NaN or subnormal and others
// only these. If `mixed`, there are also lines with some of them.
constexpr std::int64_t patterns = std::int64_t{1} << 20;
std::uint32_t bits_of(std::int64_t i, bool mixed) {
  constexpr std::uint32_t low[16] = {0x0000, 0x0001, 0x0002, 0x3FFF, 0x4000, 0x7FFE,
                                     0x7FFF, 0x8000, 0x8001, 0x8002, 0xBFFF, 0xC000,
                                     0xFFFE, 0xFFFF, 0x5555, 0xAAAA};
  const auto n = static_cast<std::uint32_t>((mixed ? i * 40503 : i) % patterns);
  return (n / 16) << 16 | low[n % 16];
}

std::uint16_t nearest_bf16(std::uint32_t bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

using Words = std::vector<std::uint16_t>;
Words last_rows(const Tensor& t, std::int64_t count) {
  Words bits(static_cast<std::size_t>(count * t.cols()));
  const auto* const elements = static_cast<const bfloat16*>(t.any().data);
  std::memcpy(bits.data(), elements + t.size() - count * t.cols(), bits.size() * 2);
  return bits;
}

// An embedding rounds rows of an f32 table: more bytes than a core's cache holds, or few, in rows
// of whole cache lines or not.
TEST(ModelsReference, StoresOfBf16RoundEveryKindOfNumber) {
  if (!on_cpu()) GTEST_SKIP() << "a test of vectors";
  const auto l2 = std::max<std::int64_t>(static_cast<std::int64_t>(core::cpu_caches().l2_bytes),
                                         std::int64_t{1} << 20);
  Memory memory;
  for (const std::int64_t cols : {32 * 27, 32 * 31 + 5})
    for (const bool mixed : {false, true}) {
      const std::int64_t many = std::max(patterns, l2 / 2) / cols + 1;
      const Tensor table = tensor(memory, DType::f32, many, cols);
      std::vector<std::uint16_t> want;  // results for the table's rows in reverse order
      for (std::int64_t r = 0; r < many; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::uint32_t bits = bits_of((many - 1 - r) * cols + c, mixed);
          table.floats()[static_cast<std::size_t>((many - 1 - r) * cols + c)] =
              std::bit_cast<float>(bits);
          want.push_back(nearest_bf16(bits));
        }
      for (const ContextOptions& options : all_contexts()) {
        Context context(options);
        for (const std::int64_t rows : {many, std::int64_t{40}}) {
          DeviceTokens tokens;
          for (std::int64_t r = 0; r < rows; ++r)
            tokens.push_back(static_cast<std::int32_t>(many - 1 - r));
          const Tensor y = tensor(memory, DType::bf16, rows, cols);
          embed(context.state(), tokens, {table.floats().data(), many, cols}, {}, y.any());
          const Words got = last_rows(y, rows);
          const auto [at, wanted] = std::mismatch(got.begin(), got.end(), want.begin());
          if (at != got.end()) {
            const std::int64_t i = at - got.begin();
            ADD_FAILURE() << describe(options) << " row " << i / cols << " of " << rows << " col "
                          << i % cols << ": " << std::hex << *at << ", not " << *wanted;
          }
        }
      }
    }
}

// A bf16 matrix in which some rows have a subnormal, an Inf or a NaN. Between them are rows without
// any.
Tensor with_specials(Memory& memory, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Tensor t = filled(memory, DType::bf16, rows, cols, seed);
  auto* const elements = static_cast<bfloat16*>(t.any().data);
  constexpr std::uint16_t kinds[] = {0x0001, 0x8040, 0x007F, 0x0080,
                                     0x7F80, 0xFF80, 0x7FC0, 0x0000};
  for (std::int64_t r = 0; r < rows; r += 9)
    elements[r * cols + r % cols] = bfloat16::from_bits(kinds[r / 9 % 8]);
  for (std::int64_t c = 0; c < cols; ++c)  // a row whose products are subnormal
    elements[4 * cols + c] = bfloat16::from_bits(static_cast<std::uint16_t>(0x0090 + c % 64));
  return t;
}

// Computes norms, SwiGLU and RoPE of the rows from `first` on. Returns the last `count` rows of
// each result. For rows without NaN or Inf all sums are finite, and so are the parameters'
// gradients.
std::vector<Words> results_of_rows(ContextState& state, Memory& memory, const Tensor& x,
                                   const Tensor& g, const Tensor& gain, std::int64_t first,
                                   std::int64_t count) {
  const std::int64_t cols = g.cols(), n = g.rows() - first;
  const auto part = [&](const Tensor& t, std::int64_t width) {
    return AnyMatrix(static_cast<bfloat16*>(t.any().data) + first * t.cols(), DType::bf16, n, width,
                     t.cols());
  };
  std::vector<Tensor> out;
  for (int i = 0; i < 9; ++i)
    out.push_back(tensor(memory, DType::bf16, n, i == 7 ? 2 * cols : i == 8 ? 3 * cols : cols));
  const Tensor mean = tensor(memory, DType::f32, 1, n), rstd = tensor(memory, DType::f32, 1, n);
  const Tensor dgain = tensor(memory, DType::f32, 1, cols),
               dbias = tensor(memory, DType::f32, 1, cols);
  rms_norm(state, {.x = part(x, cols),
                   .add = part(g, cols),
                   .sum = out[0].any(),
                   .gain = gain.floats(),
                   .y = out[1].any(),
                   .rstd = rstd.floats()});
  for (std::int64_t i = 0; i < out[2].size(); ++i)
    static_cast<bfloat16*>(out[2].any().data)[i] = bfloat16(0.5f);
  rms_norm_backward(state, {.s = part(x, cols),
                            .gain = gain.floats(),
                            .rstd = rstd.floats(),
                            .dy = part(g, cols),
                            .dx = out[2].any(),
                            .dgain = dgain.floats()});
  layer_norm(state, {.x = part(x, cols),
                     .add = part(g, cols),
                     .sum = out[3].any(),
                     .gain = gain.floats(),
                     .bias = gain.floats(),
                     .y = out[4].any(),
                     .mean = mean.floats(),
                     .rstd = rstd.floats()});
  layer_norm_backward(state, {.s = part(x, cols),
                              .gain = gain.floats(),
                              .mean = mean.floats(),
                              .rstd = rstd.floats(),
                              .dy = part(g, cols),
                              .dx = out[5].any(),
                              .dgain = dgain.floats(),
                              .dbias = dbias.floats()});
  swiglu(state, part(x, 2 * cols), out[6].any());
  swiglu_backward(state, part(x, 2 * cols), part(g, cols), out[7].any());
  std::memcpy(out[8].any().data, part(x, 3 * cols).data,
              static_cast<std::size_t>(out[8].size()) * 2);
  const Tensor angles = filled(memory, DType::f32, 1, n * cols / 2, 5);
  rope(state,
       {.heads = 1,
        .head_dim = cols,
        .length = n,
        .cosines = angles.floats(),
        .sines = angles.floats()},
       out[8].any(), false);
  std::vector<Words> last;
  for (std::size_t i = 0; i + 1 < out.size(); ++i)
    last.push_back(last_rows(out[i], count));
  // RoPE's angles begin with the first row, so its results are compared only between instruction
  // sets.
  last.push_back(first == 0 ? Words() : last_rows(out[8], n));
  return last;
}

// Results that are larger than a core's cache have the bits of their last rows computed alone.
// Results with AVX-512 BF16 equal those of AVX-512 without it, which sums in the same order.
TEST(ModelsReference, LargeBf16ResultsAreThoseOfTheRowsAndOfAvx512WithoutBf16) {
  if (!on_cpu()) GTEST_SKIP() << "a test of caches";
  const auto l2 = std::max<std::int64_t>(static_cast<std::int64_t>(core::cpu_caches().l2_bytes),
                                         std::int64_t{1} << 20);
  for (const std::int64_t cols : {160, 166}) {  // rows of five cache lines, and others
    // Only rows that end inside a vector could be stored too far.
    if (sanitized && cols == 160) continue;
    const std::int64_t rows = l2 / (cols * 2) + 45;
    const std::int64_t count = 40;
    Memory operands;
    const Tensor x = with_specials(operands, rows, 3 * cols, 1);
    const Tensor g = with_specials(operands, rows, cols, 2);
    const Tensor gain = filled(operands, DType::f32, 1, cols, 3);
    std::vector<Words> of_avx512;
    for (const ContextOptions& options : all_contexts()) {
      Context context(options);
      ContextState& state = context.state();
      Memory memory;
      const std::vector<Words> whole = results_of_rows(state, memory, x, g, gain, 0, count);
      std::vector<Words> part = results_of_rows(state, memory, x, g, gain, rows - count, count);
      for (std::size_t i = 0; i + 1 < whole.size(); ++i)
        EXPECT_EQ(whole[i], part[i]) << describe(options) << " " << cols << " result " << i;
      if (!state.features.avx512) continue;
      if (of_avx512.empty()) of_avx512 = part;
      for (std::size_t i = 0; i < part.size(); ++i)
        EXPECT_EQ(part[i], of_avx512[i]) << describe(options) << " " << cols << " result " << i;
    }
  }
}

}  // namespace
}  // namespace switchback::test
