// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: loads of vectors with prefetches, and stores that may bypass the caches.
// Included once for each Highway target.
#if defined(SWITCHBACK_MODELS_CPU_STREAMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_MODELS_CPU_STREAMS_INL
#undef SWITCHBACK_MODELS_CPU_STREAMS_INL
#else
#define SWITCHBACK_MODELS_CPU_STREAMS_INL
#endif

#include "hwy/cache_control.h"
#include "studies/models/cpu/streams.hpp"
#include "studies/models/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// Calls f(T(), past) with the element type. `past` is a compile-time constant: whether results
// bypass the caches.
template <class F>
HWY_INLINE void with_type(DType dtype, Stores stores, F&& f) {
  q::with_float_or_bf16(dtype, stores.avx512_bf16, [&]<class T>(T t) HWY_ATTR {
    // Stores that bypass the caches need whole lines; a vector of bfloat16 is half a line.
    constexpr bool by_lines = !std::is_same_v<T, bfloat16>;
    if (by_lines && stores.past_caches)
      f(t, std::bool_constant<by_lines>());
    else
      f(t, std::false_type());
  });
}

// Store vectors like store_parts and store_unordered; with `past`, whole lines bypass the caches.
template <bool past, int count, class T>
HWY_INLINE void put_parts(const VF* v, T* p, std::int64_t n) {
  if constexpr (!past || count == 1) {
    store_parts<count>(v, p, n);
  } else if constexpr (std::is_same_v<T, float>) {
    for (int j = 0; j < count; ++j)
      hn::Stream(q::canonical_nan(v[j]), F32(), p + j * lanes);
#if HWY_TARGET == HWY_AVX3
  } else {
    static_assert(count % 2 == 0);
    for (int j = 0; j < count; j += 2)
      q::narrow_any_pair<past>(v[j], v[j + 1], p + j * lanes);
#endif
  }
}
template <bool past, int count, class T>
HWY_INLINE void put_unordered(const VF* v, T* p, std::int64_t n) {
  if constexpr (past)  // f32 and bf16 of AVX-512 BF16 have the order of the elements anyway
    put_parts<past, count>(v, p, n);
  else
    store_unordered<count>(v, p, n);
}

// Whether a kernel prefetches. bf16 without AVX-512 BF16 takes longer to compute than to load, so
// there is time to prefetch. With AVX-512 BF16, norms that prefetch took 1.1 to 1.2 times as long
// on Zen 4.
template <class T>
HWY_INLINE bool asks_ahead() {
  return std::is_same_v<T, bfloat16> || !follows_pages();
}

// Prefetches `count` vectors 2048 bytes ahead. Rows are contiguous, but a core's own prefetchers
// may start again at each page, and every operand has its own pages.
template <int count, class T>
HWY_INLINE void ask_ahead(const T* p, bool asks) {
  constexpr std::int64_t far_bytes = 2048;
  if (asks) q::ask_for<count>(p + far_bytes / std::int64_t{sizeof(T)});
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
