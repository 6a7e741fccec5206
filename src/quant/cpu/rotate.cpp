// SPDX-License-Identifier: Apache-2.0
// Engine zone: the rotation, alone and with rowwise quantization.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/rotate.cpp"
#include "hwy/foreach_target.h"
//
#include "core/per_worker.hpp"
#include "core/rehearsal.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/rotated_rows.hpp"
#include "quant/cpu/rotation-inl.h"
#include "quant/rotate.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// How rows are rotated, and one with a scale is coded: any number of groups, in any alignment.
template <int g, bool stream>
struct ByRuns {
  Scale scale;

  explicit HWY_INLINE ByRuns(const Scale& s) : scale(s) {}
  // Of a row at another address each part would begin and end with stores through the caches, to
  // lines that are streamed to: a third of the speed.
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
// Four groups of 256 at a time. An element's number is d3 d2 d1 d0 in base 4, that of its group e.
// The first exchange brings e into the lanes, where no stage needs it, so that two exchanges do
// instead of three; the bytes of the codes are put in order, a quarter of the work.
//
//                    vector       block of 128 bits   lane of the block
//   in memory        e d3 d2           d1                  d0
//   stride 1         d3 d2 d0          d1                  e
//   strides 4 to 64  d3 d2 d1          d0                  e
//   stride 256       d3 e d1           d0                  d2
//
// Groups of 1024 are four of 256 with one more stage, whose exchange leaves the codes of 64
// elements in order.

inline constexpr std::int64_t group = 256;
inline constexpr std::int64_t four_groups = 4 * group;

// 32 elements of each of the groups, for the stage of stride 1.
template <class T>
HWY_INLINE void load_of_groups(const T* x, Four& v, Four& w) {
  v = lanes_transposed({widen(x), widen(x + group), widen(x + 2 * group), widen(x + 3 * group)});
  x += 16;
  w = lanes_transposed({widen(x), widen(x + group), widen(x + 2 * group), widen(x + 3 * group)});
}
// Words of the four groups are brought together, then each gets zeros below it: two unpacks for
// each vector. Permutations of words by an index would be fewer, 1.5 a vector, but have three
// operands. Vectors of v hold what has an even d1, those of w what has an odd one; their blocks are
// those of the first 16 elements' d1 / 2 and of the others'.
HWY_INLINE void load_of_groups(const bfloat16* x, Four& v, Four& w) {
  const __m512i a = _mm512_loadu_si512(x);
  const __m512i b = _mm512_loadu_si512(x + group);
  const __m512i c = _mm512_loadu_si512(x + 2 * group);
  const __m512i d = _mm512_loadu_si512(x + 3 * group);
  const auto widened = [](__m512i pairs, __m512i other_pairs) HWY_ATTR {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low = _mm512_unpacklo_epi32(pairs, other_pairs);
    const __m512i high = _mm512_unpackhi_epi32(pairs, other_pairs);
    return Four{VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, low))},
                VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, low))},
                VF{_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, high))},
                VF{_mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, high))}};
  };
  v = widened(_mm512_unpacklo_epi16(a, b), _mm512_unpacklo_epi16(c, d));
  w = widened(_mm512_unpackhi_epi16(a, b), _mm512_unpackhi_epi16(c, d));
}

// The stages of strides 1 and 4 of what was loaded; out: 128 elements.
template <class T>
HWY_INLINE void first_stages_of_groups(Four v, Four w, float* out) {
  stage<T>(v);
  stage<T>(w);
  v = blocks_transposed(v);
  w = blocks_transposed(w);
  if constexpr (std::is_same_v<T, bfloat16>) {  // d1 in order, half of it from v
    const Four first = {v.a, w.a, v.b, w.b};
    w = {v.c, w.c, v.d, w.d};
    v = first;
  }
  stage<T>(v);
  stage<T>(w);
  store(v, out);
  store(w, out + 64);
}

// Asks for 128 elements of those that come after x, in the order of memory: of f32 into the
// second-level cache, because the rotated row is what the first has room for.
template <class T>
HWY_INLINE void ask_for_groups(const T* x) {
  constexpr bool narrow = sizeof(T) == 2;
  constexpr std::int64_t ahead = (narrow ? 3072 : 4096) / std::int64_t{sizeof(T)};
  ask_for<128 / lanes, narrow ? 1 : 2>(x + ahead);
}

template <class T>
HWY_INLINE void first_stages_of_groups(const T* x, float* out) {
  HWY_UNROLL(1)
  for (std::int64_t i = 0; i < group; i += 32) {
    ask_for_groups(x + 4 * i);
    Four v;
    Four w;
    load_of_groups(x + i, v, w);
    first_stages_of_groups<T>(v, w, out + 4 * i);
  }
}

// The stages of strides 16 and 64, and 256 if that is one.
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

// The codes of 16 elements of each group: a block for each. Or, behind the stage of stride 256, of
// 64 elements of a group.
template <Made made>
HWY_INLINE __m512i codes_of_groups(const float* v, const OneScale& scale) {
  const Codes k = codes<made>(v, scale, 0);
  // Block e: the low words of lanes e of all blocks of both vectors.
  const __m512i words =
      _mm512_set_epi16(62, 54, 46, 38, 30, 22, 14, 6, 60, 52, 44, 36, 28, 20, 12, 4, 58, 50, 42, 34,
                       26, 18, 10, 2, 56, 48, 40, 32, 24, 16, 8, 0);
  return _mm512_packs_epi16(_mm512_permutex2var_epi16(k.a.raw, words, k.b.raw),
                            _mm512_permutex2var_epi16(k.c.raw, words, k.d.raw));
}

template <bool stream>
HWY_INLINE void store_codes_of_groups(const __m512i* k, std::int8_t* q) {
  const Four v = blocks_transposed({VF{_mm512_castsi512_ps(k[0])}, VF{_mm512_castsi512_ps(k[1])},
                                    VF{_mm512_castsi512_ps(k[2])}, VF{_mm512_castsi512_ps(k[3])}});
  const auto put = [&](VF bytes, std::int64_t e) HWY_ATTR {
    store_quad<stream>(hn::BitCast(QuadBytes(), bytes), q + e * group);
  };
  put(v.a, 0);
  put(v.b, 1);
  put(v.c, 2);
  put(v.d, 3);
}

// The codes of the four groups in v, and in their place the first two stages of those of x, if it
// is read. What one needs of the pipes the other leaves.
template <int g, Made made, bool stream, bool reads, class T>
HWY_INLINE void code_four_groups(float* v, const OneScale& scale, std::int8_t* q, const T* x) {
  HWY_UNROLL(1)
  for (std::int64_t i = 0; i < group; i += 64) {
    __m512i k[4];
#pragma GCC unroll 2
    for (int j = 0; j < 4; j += 2) {
      float* const at = v + 4 * i + 64 * j;
      Four a;
      Four b;
      if constexpr (reads) {
        ask_for_groups(x + 4 * i + 64 * j);
        load_of_groups(x + i + 16 * j, a, b);
      }
      k[j] = codes_of_groups<made>(at, scale);
      k[j + 1] = codes_of_groups<made>(at + 64, scale);
      if constexpr (reads) first_stages_of_groups<T>(a, b, at);
    }
    if constexpr (g == group) {
      store_codes_of_groups<stream>(k, q + i);
    } else {
      for (int e = 0; e < 4; ++e)
        store_quad<stream>(hn::Vec<QuadBytes>{k[e]}, q + e * group + i);
    }
  }
}

// The same, four groups at a time, which together may be one of 1024; groups that are left at the
// end of a row, as others are.
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
      code_four_groups<g, Made::bracket, stream, true>(v, scale, q, x);
      last_stages_of_groups<g, T>(v, largest);
      return;
    }
    if (method == Scale::Method::bracket)
      code_four_groups<g, Made::bracket, stream, false>(v, scale, q, x);
    else if (method == Scale::Method::divide)
      code_four_groups<g, Made::division, stream, false>(v, scale, q, x);
    else
      std::memset(q, 0, static_cast<std::size_t>(count));
    if (x != nullptr) rotate(x, count, v, largest);
  }
};
#endif

// Rows [begin, end). Each element comes from memory once: when a part of a row has been coded from
// `rotated`, the same part of the next row is read, rotated and put in its place.
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

// f(std::integral_constant<int, g>()) for the group.
template <class F>
HWY_INLINE void with_group(Rotation rotation, F&& f) {
  switch (rotation) {
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
  // Pieces end where groups end.
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
  // Fewer rows than threads: two operations, in which all threads share each row.
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
