// SPDX-License-Identifier: Apache-2.0
// Engine zone: the rotation, alone and with rowwise quantization.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/rotate.cpp"
#include "hwy/foreach_target.h"
//
#include "core/dry_run.hpp"
#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rotation-inl.h"
#include "quant/rotate.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Rotates rows, and quantizes each with one scale, for rows of any number of groups at any
// alignment. g is the number of elements in a group of the rotation.
template <int g, bool stream>
struct ByRuns {
  Scale scale;

  explicit HWY_INLINE ByRuns(const Scale& s) : scale(s) {}
  // Returns how many columns are processed at a time. If a row's codes are unaligned, each part
  // would begin and end with stores through the caches, to lines that are also written past the
  // caches. That would reduce the speed to a third.
  static std::int64_t part(const std::int8_t* codes, std::int64_t cols) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(codes) % quad == 0;
    return stream && !aligned ? cols : g < 256 ? 256 : g;
  }
  template <class T>
  static HWY_INLINE void rotate(const T* x, std::int64_t count, float* out, LargestOf& largest) {
    rotate_run<g>(x, count, out, largest);
  }
  template <class T>
  HWY_INLINE void code_and_rotate(float* v, std::int64_t count, std::int8_t* q, const T* x,
                                  LargestOf& largest) const {
    NoMax none;
    code_run<stream>(v, count, scale, q, v, none);
    if (x != nullptr) rotate_run<g>(x, count, v, largest);
  }
};

#if HWY_TARGET == HWY_AVX3
// Rotates four groups of 256 elements at a time. Each stage of a rotation joins four elements a
// stride apart; the table shows where elements are during each stage. The index of an element is d3
// d2 d1 d0 in base 4, and e is the index of its group. The first exchange moves e into the lanes,
// where no stage needs it, so two exchanges suffice instead of three. Instead of the third one, the
// bytes of the codes are put in order, which is a quarter of its work.
//
//                    vector       block of 128 bits   lane of the block
//   in memory        e d3 d2           d1                  d0
//   stride 1         d3 d2 d0          d1                  e
//   strides 4 to 64  d3 d2 d1          d0                  e
//   stride 256       d3 e d1           d0                  d2
//
// Groups of 1024 are four groups of 256 with one more stage, whose exchange leaves the codes of 64
// elements in order.

inline constexpr std::int64_t group = 256;
inline constexpr std::int64_t four_groups = 4 * group;

// 128 elements, 32 of each of four groups. For bf16, v holds the elements with even digit d1 of
// their index (in base 4), and w those with odd d1. For other types, v holds the first 16 elements
// of each group.
struct Block {
  Four v, w;
};

// Loads the part v of a Block of 128 elements, or the part w.
template <bool is_v, class T>
HWY_INLINE Four half_of_groups(const T* x) {
  x += is_v ? 0 : 16;
  return lanes_transposed({widen(x), widen(x + group), widen(x + 2 * group), widen(x + 3 * group)});
}
// For bf16, first interleaves the 16-bit words of the four groups, then adds zeros below each: two
// unpacks for each vector. Permutations of words by an index would be fewer, 1.5 a vector, but they
// have three operands.
template <bool is_v>
HWY_INLINE Four half_of_groups(const bfloat16* x) {
  const auto pairs = [](const bfloat16* y) HWY_ATTR {
    const __m512i a = _mm512_loadu_si512(y);
    const __m512i b = _mm512_loadu_si512(y + group);
    return is_v ? _mm512_unpacklo_epi16(a, b) : _mm512_unpackhi_epi16(a, b);
  };
  const __m512i a = pairs(x);
  const __m512i b = pairs(x + 2 * group);
  const __m512i low = _mm512_unpacklo_epi32(a, b);
  const __m512i high = _mm512_unpackhi_epi32(a, b);
  const __m512i zero = _mm512_setzero_si512();
  return {VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, low))},
          VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, low))},
          VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, high))},
          VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, high))}};
}
template <class T>
HWY_INLINE Block load_of_groups(const T* x) {
  return {half_of_groups<true>(x), half_of_groups<false>(x)};
}

template <class T>
HWY_INLINE void stage_of_block(Block& b) {
  stage<T>(b.v);
  stage<T>(b.w);
}

// Puts the index digit d1 of a Block's elements in order, after the exchange for the stage of
// stride 4. For bf16, half of the elements in each result come from v, the others from w.
template <class T>
HWY_INLINE void put_d1_in_order(Block& b) {
  if constexpr (std::is_same_v<T, bfloat16>)
    b = {{b.v.a, b.w.a, b.v.b, b.w.b}, {b.v.c, b.w.c, b.v.d, b.w.d}};
}

HWY_INLINE void store(const Block& b, float* out) {
  store(b.v, out);
  store(b.w, out + 64);
}

// Prefetches 128 of the elements that follow x, in the order of memory. f32 goes into the
// second-level cache, because the first-level cache has room only for the rotated row.
template <class T>
HWY_INLINE void ask_for_groups(const T* x) {
  constexpr bool narrow = sizeof(T) == 2;
  constexpr std::int64_t ahead = (narrow ? 3072 : 6144) / std::int64_t{sizeof(T)};
  ask_for<128 / lanes, narrow ? 1 : 2>(x + ahead);
}

// Computes the rotation's stages of strides 1 and 4 for four groups of 256 elements.
template <class T>
HWY_INLINE void first_stages_of_groups(const T* x, float* out) {
  HWY_UNROLL(1)
  for (std::int64_t i = 0; i < group; i += 32) {
    ask_for_groups(x + 4 * i);
    Block b = load_of_groups(x + i);
    stage_of_block<T>(b);
    b.v = blocks_transposed(b.v);
    b.w = blocks_transposed(b.w);
    put_d1_in_order<T>(b);
    stage_of_block<T>(b);
    store(b, out + 4 * i);
  }
}

// Computes the rotation's stages of strides 16 and 64 for four groups of 256 elements, and the
// stage of stride 256 if g is 1024.
template <int g, class T>
HWY_INLINE void last_stages_of_groups(float* out, LargestOf& largest) {
  HWY_UNROLL(1)
  for (float* at = out; at < out + 64; at += 16) {
    VF v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      v[i] = hn::LoadU(F32(), at + 64 * i);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
      stage<fuses<T>>(v[i], v[i + 1], v[i + 2], v[i + 3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const VF sum = stage<fuses<T>>(v[i], v[i + 4], v[i + 8], v[i + 12]);
      if constexpr (g == group) largest.add(v[i], v[i + 4], v[i + 8], v[i + 12], sum);
    }
    if constexpr (g > group) {
#pragma GCC unroll 4
      for (int i = 0; i < 16; i += 4) {
        Four w = lanes_transposed({v[i], v[i + 1], v[i + 2], v[i + 3]});
        const VF sum = stage<T>(w);
        largest.add(w.a, w.b, w.c, w.d, sum);
        v[i] = w.a;
        v[i + 1] = w.b;
        v[i + 2] = w.c;
        v[i + 3] = w.d;
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      hn::StoreU(v[i], F32(), at + 64 * i);
  }
}

// Pins the operations that compute v: a compiler may not move them past other pinned ones. A core
// selects work among 64 operations that wait for its vector units. If these are of one kind, some
// units are idle while others are overloaded.
template <class V>
HWY_INLINE void pin(V& v) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" : "+v"(v.raw));
#else
  static_cast<void>(v);
#endif
}
HWY_INLINE void pin(Four& v) {
  pin(v.a);
  pin(v.b);
  pin(v.c);
  pin(v.d);
}
HWY_INLINE void pin(Block& b) {
  pin(b.v);
  pin(b.w);
}

// Returns the codes of 8 elements of each of four groups, as 16-bit words. 128-bit block e of the
// result is group e: the low words of lanes e of all blocks of both vectors.
HWY_INLINE VU words_of_groups(VU a, VU b) {
  const __m512i words =
      _mm512_set_epi16(62, 54, 46, 38, 30, 22, 14, 6, 60, 52, 44, 36, 28, 20, 12, 4, 58, 50, 42, 34,
                       26, 18, 10, 2, 56, 48, 40, 32, 24, 16, 8, 0);
  return VU{_mm512_permutex2var_epi16(a.raw, words, b.raw)};
}
// Returns the codes of v[0, 32) as 16-bit words; they are valid if no bit of `differ` is set.
HWY_INLINE VU words_of_groups(const float* v, const OneScale& scale, VU& differ) {
  const VU a = bracketed(scale, hn::LoadU(F32(), v), 0, differ);
  const VU b = bracketed(scale, hn::LoadU(F32(), v + 16), 0, differ);
  VU words = words_of_groups(a, b);
  pin(words);
  pin(differ);
  return words;
}
// Packs words to bytes: the codes of 16 elements of each of four groups, one 128-bit block for each
// group. After the stage of stride 256 they are the codes of 64 elements of one group. The result's
// type is a vector of floats, because the functions that move blocks take floats.
HWY_INLINE VF bytes_of_groups(VU words, VU other_words) {
  return VF{_mm512_castsi512_ps(_mm512_packs_epi16(words.raw, other_words.raw))};
}
template <Made made>
HWY_INLINE VF codes_of_groups(const float* v, const OneScale& scale) {
  const Codes k = codes<made>(v, scale, 0);
  return bytes_of_groups(words_of_groups(k.a, k.b), words_of_groups(k.c, k.d));
}
// Not inlined: inlined, it would take registers from the loop, which hardly ever calls it.
HWY_NOINLINE VF divided_codes_of_groups(const float* v, const OneScale& scale) {
  return codes_of_groups<Made::division>(v, scale);
}

// Stores the codes of 64 elements of each of the four groups of 256.
template <int g, bool stream>
HWY_INLINE void store_codes_of_groups(Four k, std::int8_t* q) {
  if constexpr (g == group) k = blocks_transposed(k);
  const auto put = [&](VF bytes, std::int64_t e) HWY_ATTR {
    store_quad<stream>(hn::BitCast(QuadBytes(), bytes), q + e * group);
  };
  put(k.a, 0);
  put(k.b, 1);
  put(k.c, 2);
  put(k.d, 3);
}

template <int g, Made made, bool stream>
HWY_INLINE void code_four_groups(const float* v, const OneScale& scale, std::int8_t* q) {
  HWY_UNROLL(1)
  for (std::int64_t i = 0; i < group; i += 64) {
    const auto codes = [&](std::int64_t j)
                           HWY_ATTR { return codes_of_groups<made>(v + 4 * i + 64 * j, scale); };
    store_codes_of_groups<g, stream>({codes(0), codes(1), codes(2), codes(3)}, q + i);
  }
}

// One step of the loop in code_and_rotate_four_groups(). Computes the codes of v[0, 128), which are
// 32 elements of each group. Replaces v by the result of the second stage of b, whose first stage
// is done. Then sets b to the first stage of the 32 elements of each group from `next` on.
//
// Codes use the units that multiply; loads and exchanges use those that shuffle. So codes alternate
// with loads and exchanges. The stages of the two blocks alternate too, because each of them waits
// for its sums.
template <class T>
HWY_INLINE void code_and_rotate_block(float* v, const OneScale& scale, const T* next, Block& b,
                                      VF& codes, VF& other_codes) {
  Block n;
  VU differ = hn::Zero(U32());
  n.v = half_of_groups<true>(next);
  pin(n.v);
  VU words = words_of_groups(v, scale, differ);
  b.v = blocks_transposed(b.v);
  pin(b.v);
  codes = bytes_of_groups(words, words_of_groups(v + 32, scale, differ));
  pin(codes);
  n.w = half_of_groups<false>(next);
  pin(n.w);
  words = words_of_groups(v + 64, scale, differ);
  b.w = blocks_transposed(b.w);
  pin(b.w);
  put_d1_in_order<T>(b);
  other_codes = bytes_of_groups(words, words_of_groups(v + 96, scale, differ));
  pin(other_codes);
  stage<T>(n.v);
  pin(n.v);
  stage<T>(b.v);
  pin(b.v);
  stage<T>(n.w);
  pin(n.w);
  stage<T>(b.w);
  pin(b.w);
  if (HWY_UNLIKELY(!none(differ))) {
    codes = divided_codes_of_groups(v, scale);
    other_codes = divided_codes_of_groups(v + 64, scale);
  }
  store(b, v);
  b = n;
}

// Computes the codes of the four groups of 256 elements in v. Replaces v by the groups at x, after
// the first two stages of their rotation.
template <int g, bool stream, class T>
HWY_INLINE void code_and_rotate_four_groups(float* v, const OneScale& scale, std::int8_t* q,
                                            const T* x) {
  Block b = load_of_groups(x);
  stage_of_block<T>(b);
  pin(b);
  HWY_UNROLL(1)
  for (std::int64_t i = 0; i < group; i += 64) {
    Four k;
    ask_for_groups(x + 4 * i);
    code_and_rotate_block(v + 4 * i, scale, x + i + 32, b, k.a, k.b);
    ask_for_groups(x + 4 * i + 128);
    // The last call reads and begins the first block again; its result is not used.
    code_and_rotate_block(v + 4 * i + 128, scale, x + (i + 64) % group, b, k.c, k.d);
    store_codes_of_groups<g, stream>(k, q + i);
  }
}

// Rotates and quantizes rows as ByRuns does, but four groups of 256 at a time, which together may
// be one group of 1024. Groups that are left at the end of a row are processed by ByRuns.
template <int g, bool stream>
struct ByFourGroups {
  OneScale scale;
  ByRuns<g, stream> rest;

  explicit HWY_INLINE ByFourGroups(const Scale& s) : scale(s), rest(s) {}
  static bool takes(const Request& o) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(o.q.codes.data) % quad == 0 &&
                         o.q.codes.stride % quad == 0;
    return o.x.cols >= four_groups && (aligned || !stream);
  }
  static std::int64_t part(const std::int8_t*, std::int64_t) { return four_groups; }

  template <class T>
  static HWY_INLINE void rotate(const T* x, std::int64_t count, float* out, LargestOf& largest) {
    std::int64_t i = 0;
    for (; i + four_groups <= count; i += four_groups) {
      first_stages_of_groups(x + i, out + i);
      last_stages_of_groups<g, T>(out + i, largest);
    }
    rotate_run<g>(x + i, count - i, out + i, largest);
  }
  template <class T>
  HWY_INLINE void code_and_rotate(float* v, std::int64_t count, std::int8_t* q, const T* x,
                                  LargestOf& largest) const {
    if (count < four_groups) return rest.code_and_rotate(v, count, q, x, largest);
    const Scale::Method method = rest.scale.method;
    if (HWY_LIKELY(method == Scale::Method::bracket && x != nullptr)) {
      code_and_rotate_four_groups<g, stream>(v, scale, q, x);
      last_stages_of_groups<g, T>(v, largest);
      return;
    }
    if (method == Scale::Method::bracket)
      code_four_groups<g, Made::bracket, stream>(v, scale, q);
    else if (method == Scale::Method::divide)
      code_four_groups<g, Made::division, stream>(v, scale, q);
    else
      std::memset(q, 0, static_cast<std::size_t>(count));
    if (x != nullptr) rotate(x, count, v, largest);
  }
};
#endif

// Rotates and quantizes rows [begin, end). Each element is read from memory once: when a part of a
// row has been quantized from `rotated`, the same part of the next row is read, rotated and stored
// in its place.
template <class Way, class T>
void rotated_rows(const Request& o, std::int64_t begin, std::int64_t end, float* rotated) {
  const std::int64_t cols = o.x.cols;
  LargestOf largest;
  Way::rotate(row<T>(o.x, begin), cols, rotated, largest);
  for (std::int64_t r = begin; r < end; ++r) {
    const float absmax = absmax_from_bits(largest.result(rotated, cols));
    core::store(o.q.absmax.data(), r, absmax);
    const Way way(Scale::of(absmax));
    std::int8_t* const codes = row(o.q.codes, r);
    const T* const x = r + 1 < end ? row<T>(o.x, r + 1) : nullptr;
    largest = LargestOf();
    const std::int64_t part = Way::part(codes, cols);
    for (std::int64_t c = 0; c < cols; c += part)
      way.code_and_rotate(rotated + c, std::min(part, cols - c), codes + c,
                          x == nullptr ? nullptr : x + c, largest);
  }
}
template <int g, bool stream, class T>
void rotated_rows(const Request& o, std::int64_t begin, std::int64_t end, float* rotated) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (g >= group)
    if (ByFourGroups<g, stream>::takes(o))
      return rotated_rows<ByFourGroups<g, stream>, T>(o, begin, end, rotated);
#endif
  rotated_rows<ByRuns<g, stream>, T>(o, begin, end, rotated);
}

// Calls f(std::integral_constant<int, g>()), where g is the number of elements in a group of the
// rotation.
template <class F>
HWY_INLINE void with_group(Rotation rotation, F&& f) {
  switch (rotation) {
    case Rotation::hadamard_4:
      return f(std::integral_constant<int, 4>());
    case Rotation::hadamard_16:
      return f(std::integral_constant<int, 16>());
    case Rotation::hadamard_64:
      return f(std::integral_constant<int, 64>());
    case Rotation::hadamard_256:
      return f(std::integral_constant<int, 256>());
    default:
      return f(std::integral_constant<int, 1024>());
  }
}

void RotatePiece(const Request& o, const cpu::Cut::Piece& piece) {
  const std::int64_t cols = piece.col_end - piece.col_begin;
  with_group(o.rotation, [&]<int g>(std::integral_constant<int, g>) HWY_ATTR {
    with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
      const auto for_rows = [&]<class Y>(Y) HWY_ATTR {
        for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r)
          rotate_to<g>(row<T>(o.x, r, piece.col_begin), cols,
                       static_cast<Y*>(o.rotated.data) + r * o.rotated.stride + piece.col_begin);
      };
      if constexpr (std::is_same_v<T, float>) return with_type(o.rotated.dtype, for_rows);
      if (o.rotated.dtype == DType::f32)
        for_rows(float());
      else
        for_rows(T());
    });
  });
}

void RotatedRows(const Request& o, std::int64_t begin, std::int64_t end, bool stream,
                 float* scratch) {
  with_group(o.rotation, [&]<int g>(std::integral_constant<int, g>) HWY_ATTR {
    with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
      if (!stream) return rotated_rows<g, false, T>(o, begin, end, scratch);
      rotated_rows<g, true, T>(o, begin, end, scratch);
      hwy::FlushStream();
    });
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(RotatePiece);
HWY_EXPORT(RotatedRows);

namespace cpu {

RotatedRowsKernel rotated_rows_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(RotatedRows)[table_index(features)];
}

void rotate(ContextState& state, const Config& config, const Request& o) {
  // The size of a task is rounded up so that tasks end where groups of the rotation end.
  const std::int64_t elements =
      (task_elements(state, config, o.x.rows, o.x.cols) + largest_rotation - 1) / largest_rotation *
      largest_rotation;
  const Cut cut(o.x.rows, o.x.cols, elements);
  const auto kernel = HWY_DISPATCH_TABLE(RotatePiece)[table_index(state.features)];
  state.threads.for_each(cut.tasks(), [&](std::int64_t task, int) { kernel(o, cut.piece(task)); });
}

void rotate_quantize(ContextState& state, const Config& config, const Request& o) {
  const std::int64_t threads = state.threads.count();
  const std::int64_t elements = task_elements(state, config, o.x.rows, o.x.cols);
  core::Workspace::Frame frame(state.workspace);
  // If there are fewer rows than threads, rotation and quantization are two operations, each of
  // which divides each row among all threads.
  if (o.x.rows < threads && o.x.cols > elements) {
    const AnyMatrix rotated(frame.take<float>(o.x.rows * o.x.cols), DType::f32, o.x.rows, o.x.cols,
                            o.x.cols);
    return core::all_or_nothing(state, [&] {
      rotate(state, config, {.x = o.x, .rotation = o.rotation, .rotated = rotated});
      rowwise(state, config, {.x = rotated, .q = o.q});
    });
  }
  const core::PerWorker<float> scratch(frame, state.threads.count(), o.x.cols);
  const auto kernel = rotated_rows_kernel(state.features);
  const std::int64_t rows = std::max<std::int64_t>(1, elements / o.x.cols);
  state.threads.for_ranges(o.x.rows, rows, [&](std::int64_t begin, std::int64_t end, int worker) {
    kernel(o, begin, end, config.stream, scratch.of(worker));
  });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
