// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: vectors that are asked for ahead, or that go past the caches. Included once
// for each Highway target.
#if defined(SWITCHBACK_MODELS_CPU_STREAMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_MODELS_CPU_STREAMS_INL
#undef SWITCHBACK_MODELS_CPU_STREAMS_INL
#else
#define SWITCHBACK_MODELS_CPU_STREAMS_INL
#endif

#include "hwy/cache_control.h"
#include "models/cpu/streams.hpp"
#include "models/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// f(T(), past), where `past` is a constant: whether results go past the caches.
template <class F>
HWY_INLINE void with_type(DType dtype, bool past, F&& f) {
  if (dtype == DType::bf16)
    f(bfloat16(), std::false_type());
  else if (past)
    f(float(), std::true_type());
  else
    f(float(), std::false_type());
}

// As store_part and store_unordered; with `past` f32 go past the caches.
template <bool past, int count, class T>
HWY_INLINE void put_part(VF v, T* p, int j, std::int64_t n) {
  if constexpr (past && count > 1)
    hn::Stream(q::canonical_nan(v), F32(), p + j * lanes);
  else
    store_part<count>(v, p, j, n);
}
template <bool past, int count, class T>
HWY_INLINE void put_unordered(const VF* v, T* p, std::int64_t n) {
  if constexpr (past)
    for (int j = 0; j < count; ++j)
      put_part<past, count>(v[j], p, j, n);
  else
    store_unordered<count>(v, p, n);
}

// Whether to ask for lines ahead: bf16 compute longer than memory takes, so that there is room.
template <class T>
HWY_INLINE bool asks_ahead() {
  return sizeof(T) < sizeof(float) || !follows_pages();
}

// Asks memory for what lies so far behind `count` vectors: rows follow each other, but a core's own
// prefetchers may start anew at each page, of which every operand has one.
template <int count, class T>
HWY_INLINE void ask_ahead(const T* p, bool asks) {
  constexpr std::int64_t far_bytes = 2048;
  if (asks) q::ask_for<count>(p + far_bytes / std::int64_t{sizeof(T)});
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
