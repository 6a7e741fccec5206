// SPDX-License-Identifier: Apache-2.0
// Tests of how CPU kernels store results: bf16 is rounded to nearest even, and has a single NaN, by
// any instruction; and non-temporal stores give the bits of ordinary ones.
#include <algorithm>
#include <bit>
#include <vector>

#include "studies/models/kernels.hpp"
#include "studies/models/operations.hpp"

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

// The size of results that are larger than a core's cache: these are stored past the caches.
std::int64_t large_bytes() {
  return std::max<std::int64_t>(static_cast<std::int64_t>(core::cpu_caches().l2_bytes),
                                std::int64_t{1} << 20);
}

// An embedding rounds rows of an f32 table: more bytes than a core's cache holds, or few, in rows
// of whole cache lines or not.
TEST(ModelsReference, StoresOfBf16RoundEveryKindOfNumber) {
  if (!on_cpu()) GTEST_SKIP() << "a test of vectors";
  Memory memory;
  for (const std::int64_t cols : {32 * 27, 32 * 31 + 5})
    for (const bool mixed : {false, true}) {
      const std::int64_t many = std::max(patterns, large_bytes() / 2) / cols + 1;
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
          const auto got = y.values<std::uint16_t>();
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

// Results that are larger than a core's cache have the bits of those of one sequence. Results with
// AVX-512 BF16 equal those of AVX-512 without it, which sums in the same order, except those of
// attention. Rows have five cache lines, or end inside a vector.
TEST(ModelsReference, LargeResultsAreThoseOfTheirSequences) {
  if (!on_cpu()) GTEST_SKIP() << "a test of caches";
  for (const auto& [dtype, cols] :
       {std::pair<DType, std::int64_t>{DType::f32, 80}, {DType::bf16, 160}, {DType::bf16, 166}}) {
    // Only rows that end inside a vector could be stored too far.
    if (sanitized && cols == 160) continue;
    const models::AttentionShape one{.batch = 1, .length = 64, .heads = 1, .head_dim = cols};
    models::AttentionShape many = one;
    many.batch =
        large_bytes() / (64 * cols * static_cast<std::int64_t>(dtype_size_bytes(dtype))) + 2;
    std::vector<std::vector<std::byte>> of_avx512;
    for (const ContextOptions& options : isa_contexts(3)) {
      Context context(options);
      const bool has_avx512 = context.state().features.avx512;
      // Only AVX-512 stores bf16 past the caches.
      if (dtype == DType::bf16 && !has_avx512) continue;
      Memory memory;
      const Operations all(context.state(), memory, dtype, many);
      const Operations alone(context.state(), memory, dtype, one);
      all.repeat_first_sequence();
      all.run();
      alone.run();
      std::vector<std::vector<std::byte>> bytes;
      for (std::size_t i = 0; i < alone.row_results().size(); ++i) {
        const auto want = alone.row_results()[i];
        EXPECT_TRUE(std::ranges::equal(all.row_results()[i].last(want.size()), want))
            << describe(options) << " " << cols << " result " << i;
        bytes.emplace_back(want.begin(), want.end());
      }
      if (!has_avx512) continue;
      bytes.resize(bytes.size() - 2);
      if (of_avx512.empty()) of_avx512 = bytes;
      EXPECT_EQ(bytes, of_avx512) << describe(options) << " " << cols;
    }
  }
}

}  // namespace
}  // namespace switchback::test
