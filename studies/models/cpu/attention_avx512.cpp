// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention of bf16 with vdpbf16ps of AVX-512 BF16.
//
// For each of 16 columns, vdpbf16ps multiplies two pairs of bf16 and adds both products to f32.
// Here it multiplies a pair from a row of A, broadcast to all columns, by 16 pairs from a line of
// B. It treats subnormal operands and sums as zero, whatever mode the process has set, and rounds
// to nearest. The number of roundings within a pair depends on the processor. So results may differ
// in bits between processors, but not between runs or numbers of threads on one processor.
#include "studies/models/cpu/attention_bf16_task.hpp"

#if defined(__AVX512BF16__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "studies/models/cpu/attention_bf16_kernels.hpp"

namespace switchback::models::bf16 {

namespace {

constexpr int pair_bytes = 4;

// A part of a product whose sums stay in registers: `rows` rows and `vectors` vectors of columns.
// Its first step starts at the pair `begin` of its depth, and its last step stops before the pair
// `end`.
struct Part {
  const char *left, *right;
  int64_t left_step, right_step, right_half, steps, begin, end;
  float* c;
  bool add;
};
template <int rows, int vectors>
SWITCHBACK_INLINE void multiply_part(const Part& p) {
  __m512 sums[rows][vectors];
  SWITCHBACK_EACH(i, rows)
  SWITCHBACK_EACH(j, vectors) {
    sums[i][j] =
        p.add ? _mm512_load_ps(p.c + j * register_floats + i * lanes) : _mm512_setzero_ps();
  }
  const char* left = p.left;
  const char* right = p.right;
  int64_t pair = p.begin;
  for (int64_t s = 1; s <= p.steps; ++s, left += p.left_step, right += p.right_step) {
    const int64_t end = s < p.steps ? lanes : p.end;
    for (; pair < end; ++pair) {
      __m512i columns[vectors];
      SWITCHBACK_EACH(j, vectors) {
        columns[j] = _mm512_load_si512(right + j * p.right_half + pair * line_bytes);
      }
      SWITCHBACK_EACH(i, rows) {
        const __m512i values = _mm512_set1_epi32(
            *reinterpret_cast<const int32_t*>(left + i * line_bytes + pair * pair_bytes));
        SWITCHBACK_EACH(j, vectors) {
          sums[i][j] = _mm512_dpbf16_ps(sums[i][j], (__m512bh)values, (__m512bh)columns[j]);
        }
      }
    }
    pair = 0;
  }
  SWITCHBACK_EACH(i, rows)
  SWITCHBACK_EACH(j, vectors) {
    _mm512_store_ps(p.c + j * register_floats + i * lanes, sums[i][j]);
  }
}

struct Vectors {
  static void begin() {}
  static void end() {}

  // Keeps 16 vectors of sums at a time, more products in flight than the latency of one in cycles.
  // 8 rows and both vectors of columns need 10 loads for 16 products. In a diagonal block, where 16
  // rows need only one of the two vectors, the other one is skipped, and so is depth that 8 rows do
  // not need.
  static __attribute__((noinline)) void multiply(const Factor& left, const Factor& right,
                                                 int64_t steps, float* c, bool add, Seen seen) {
    constexpr int together = lanes / 2;
    for (int row = 0; row < block;) {
      const int half = row / lanes;
      Part part = {
          .left = static_cast<const char*>(left.data) + half * left.half + row % lanes * line_bytes,
          .right = static_cast<const char*>(right.data),
          .left_step = left.step,
          .right_step = right.step,
          .right_half = right.half,
          .steps = steps,
          .begin = seen == Seen::depth_from && row > lanes ? row - lanes : 0,
          .end = seen == Seen::depth_to && row < lanes ? row + together : lanes,
          .c = c + half * (2 * register_floats) + row % lanes * lanes,
          .add = add};
      if (seen == (half == 0 ? Seen::columns_to : Seen::columns_from)) {
        part.right += half * right.half;
        part.c += half * register_floats;
        multiply_part<lanes, 1>(part);
        row += lanes;
      } else {
        multiply_part<together, 2>(part);
        row += together;
      }
    }
  }
};

}  // namespace

const Kernels* kernels_of_avx512() {
  return &kernels_with<Vectors>;
}

}  // namespace switchback::models::bf16

#else

namespace switchback::models::bf16 {

const Kernels* kernels_of_avx512() {
  return nullptr;
}

}  // namespace switchback::models::bf16

#endif
