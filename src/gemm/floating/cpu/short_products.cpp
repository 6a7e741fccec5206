// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/cpu/short_products.hpp"

#include <algorithm>

#include "core/assert.hpp"
#include "core/cpu/isa.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#define SWITCHBACK_AVX512F __attribute__((target("avx512f,prfchw")))
#endif

namespace switchback::floating {

#if defined(__x86_64__)

namespace {

constexpr int vector_size = 16;
constexpr std::int64_t line_bytes = 64;

// A tile of d has 24 vectors of sums, which hide the latency of the multiply-add. For each row of a
// and b they need 4 loads of b and 6 of a, fewer than the CPU can do in that time.
constexpr int tile_height = 6;
constexpr int tile_vectors = 4;
constexpr std::int64_t tile_width = std::int64_t{tile_vectors} * vector_size;
// Distance between rows of packed a, in floats.
constexpr std::int64_t packed_step = 8;

/// Where and how a tile of d is stored.
struct TileOut {
  float* d;
  std::int64_t ldd;
  int height;      // rows of the tile to store
  __mmask16 last;  // mask of the last vector's columns
  bool streams;    // whether stores are non-temporal; vectors are then whole and aligned
};

// Packs `count` columns of a, one row after the other, with zeros up to tile_height columns.
SWITCHBACK_AVX512F void pack_short(const float* a, std::int64_t lda, std::int64_t rows, int count,
                                   float* packed) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1u);
  constexpr __mmask16 all = (1u << tile_height) - 1u;
  for (std::int64_t r = 0; r < rows; ++r)
    _mm512_mask_storeu_ps(packed + r * packed_step, all, _mm512_maskz_loadu_ps(mask, a + r * lda));
}

template <int Vectors>
SWITCHBACK_AVX512F void short_tile(const float* packed, const float* b, std::int64_t ldb,
                                   std::int64_t rows, const TileOut& out) {
  __m512 sums[tile_height][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < tile_height; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      sums[i][v] = _mm512_setzero_ps();
  const std::int64_t lines = out.streams ? 0 : std::int64_t{out.height} * Vectors;
  std::int64_t fetched = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    __m512 x[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      x[v] = v + 1 < Vectors ? _mm512_loadu_ps(b + v * vector_size)
                             : _mm512_maskz_loadu_ps(out.last, b + v * vector_size);
#pragma GCC unroll 8
    for (int i = 0; i < tile_height; ++i) {
      const __m512 factor = _mm512_set1_ps(packed[i]);
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v)
        sums[i][v] = _mm512_fmadd_ps(factor, x[v], sums[i][v]);
    }
    // Prefetches the lines of d one by one while its sums are computed. Otherwise stores would wait
    // for them.
    if (fetched < lines) {
      __builtin_prefetch(out.d + fetched / Vectors * out.ldd + fetched % Vectors * vector_size, 1);
      ++fetched;
    }
    packed += packed_step;
    b += ldb;
  }
#pragma GCC unroll 8
  for (int i = 0; i < tile_height; ++i) {
    if (i >= out.height) break;
    float* const d = out.d + i * out.ldd;
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if (out.streams)
        _mm512_stream_ps(d + v * vector_size, sums[i][v]);
      else if (v + 1 < Vectors)
        _mm512_storeu_ps(d + v * vector_size, sums[i][v]);
      else
        _mm512_mask_storeu_ps(d + v * vector_size, out.last, sums[i][v]);
    }
  }
}

using ShortTile = void (*)(const float*, const float*, std::int64_t, std::int64_t, const TileOut&);
constexpr ShortTile short_tiles[tile_vectors] = {short_tile<1>, short_tile<2>, short_tile<3>,
                                                 short_tile<4>};

// Computes rows [begin, end) of the d of one product.
void short_block(const ShortShape& shape, const ShortProduct& product, std::int64_t begin,
                 std::int64_t end, bool streams) {
  float packed[short_product_rows * packed_step];
  for (std::int64_t n = begin; n < end; n += tile_height) {
    const int height = static_cast<int>(std::min<std::int64_t>(tile_height, end - n));
    pack_short(product.a + n, shape.lda, product.rows, height, packed);
    for (std::int64_t k = 0; k < shape.k; k += tile_width) {
      const std::int64_t width = std::min(tile_width, shape.k - k);
      const std::int64_t vectors = (width + vector_size - 1) / vector_size;
      const auto rest = static_cast<unsigned>(width - (vectors - 1) * vector_size);
      short_tiles[vectors - 1](packed, product.b + k, shape.ldb, product.rows,
                               {.d = product.d + n * shape.ldd + k,
                                .ldd = shape.ldd,
                                .height = height,
                                .last = static_cast<__mmask16>((1u << rest) - 1u),
                                .streams = streams});
    }
  }
  if (streams) _mm_sfence();
}

bool streams_short(const ContextState& state, const ShortShape& shape,
                   std::span<const ShortProduct> products) {
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  const auto bytes = static_cast<std::int64_t>(products.size() * sizeof(float)) * shape.n * shape.k;
  const bool aligned = shape.k % vector_size == 0 && shape.ldd % vector_size == 0 &&
                       std::all_of(products.begin(), products.end(), [](const ShortProduct& one) {
                         return reinterpret_cast<std::uintptr_t>(one.d) % line_bytes == 0;
                       });
  return l2 > 0 && bytes > 2 * state.threads.count() * l2 && aligned;
}

}  // namespace

bool has_short_products(const ContextState& state) noexcept {
  return state.on_cpu() && state.features.avx512;
}

void run_short_products(ContextState& state, const ShortShape& shape,
                        std::span<const ShortProduct> products) {
  if (products.empty() || shape.n == 0 || shape.k == 0) return;
  SWITCHBACK_ASSERT(has_short_products(state));
  const bool streams = streams_short(state, shape, products);
  // If there are enough products, each thread computes whole products: it then reads b from its own
  // cache.
  constexpr std::int64_t tasks_per_thread = 4;
  const auto count = static_cast<std::int64_t>(products.size());
  const std::int64_t wanted = tasks_per_thread * state.threads.count();
  const std::int64_t parts = (wanted + count - 1) / count;
  const std::int64_t tiles = (shape.n + tile_height - 1) / tile_height;
  const std::int64_t block = (tiles + parts - 1) / parts * tile_height;
  const std::int64_t blocks = (shape.n + block - 1) / block;
  state.threads.for_each(count * blocks, [&](std::int64_t task, int) {
    const std::int64_t begin = task % blocks * block;
    short_block(shape, products[static_cast<std::size_t>(task / blocks)], begin,
                std::min(begin + block, shape.n), streams);
  });
}

#else

bool has_short_products(const ContextState&) noexcept {
  return false;
}

void run_short_products(ContextState&, const ShortShape&, std::span<const ShortProduct>) {
  SWITCHBACK_ASSERT(false);
}

#endif

}  // namespace switchback::floating
