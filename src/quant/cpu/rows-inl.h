// SPDX-License-Identifier: Apache-2.0
// Engine zone: absmax and codes of runs of consecutive elements. Included once for each Highway
// target.
#if defined(SWITCHBACK_QUANT_CPU_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_ROWS_INL
#undef SWITCHBACK_QUANT_CPU_ROWS_INL
#else
#define SWITCHBACK_QUANT_CPU_ROWS_INL
#endif

#include "quant/cpu/column_scales.hpp"
#include "quant/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// A run is a number of consecutive elements, and a quad is four vectors. If a run's length is not a
// multiple of a quad, its last quad overlaps the previous one: computing maxima and codes twice
// does no harm. A run shorter than a quad is padded with zeros.

template <class T>
HWY_INLINE void add_run(RunningMax<T>& max, const T* x, std::int64_t count) {
  if (count < quad) {
    if (count > 0) max.add(Padded<T>(x, count).elements);
    return;
  }
  std::int64_t i = 0;
  for (; i + quad <= count; i += quad)
    max.add(x + i);
  if (i < count) max.add(x + count - quad);
}

// v[0, count) = x · scales, element by element in f32. Updates `max` with the magnitudes of v. v
// has room for whole quads of vectors.
template <class T>
HWY_INLINE void scale_run(const T* x, std::int64_t count, const float* scales, float* v,
                          RunningMax<float>& max) {
  const auto scale_quad = [&](const T* from, const float* by, float* to) HWY_ATTR {
    for (std::int64_t i = 0; i < quad; i += lanes)
      hn::StoreU(hn::Mul(widen(from + i), hn::LoadU(F32(), by + i)), F32(), to + i);
    max.add(to);
  };
  std::int64_t i = 0;
  for (; i + quad <= count; i += quad)
    scale_quad(x + i, scales + i, v + i);
  if (i < count)
    scale_quad(Padded<T>(x + i, count - i).elements, Padded<float>(scales + i, count - i).elements,
               v + i);
}

// A RunningMax that does nothing.
struct NoMax {
  template <class T>
  HWY_INLINE void add(const T*) {}
};

// q[0, count) = codes of x[0, count). Meanwhile `max` reads next[0, count), the elements that
// follow, so that memory is read while codes are computed.
template <Made made, bool stream, class T, class Max>
HWY_INLINE void code_run(const T* x, std::int64_t count, const OneScale& scale, std::int8_t* q,
                         const T* next, Max& max) {
  if (count < quad) {
    if (count <= 0) return;
    alignas(64) std::int8_t padded[quad];
    code_quad<made, false>(Padded<T>(x, count).elements, scale, padded);
    std::memcpy(q, padded, static_cast<std::size_t>(count));
    max.add(Padded<T>(next, count).elements);
    return;
  }
  std::int64_t i = 0;
  if constexpr (stream) {
    i = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(q) % quad);
    if (i > 0) {
      code_quad<made, false>(x, scale, q);
      max.add(next);
    }
  }
  for (; i + quad <= count; i += quad) {
    max.add(next + i);
    code_quad<made, stream>(x + i, scale, q + i);
  }
  if (i < count) {
    i = count - quad;
    max.add(next + i);
    code_quad<made, false>(x + i, scale, q + i);
  }
}

template <bool stream, class T, class Max>
HWY_INLINE void code_run(const T* x, std::int64_t count, const Scale& scale, std::int8_t* q,
                         const T* next, Max& max) {
  switch (scale.method) {
    case Scale::Method::bracket:
      if constexpr (sizeof(T) == 2)
        if (const OneFactor one = OneFactor::of<T>(scale); one.suffices)
          return code_run<Made::product, stream>(x, count, OneScale(scale, one.factor), q, next,
                                                 max);
      return code_run<Made::bracket, stream>(x, count, OneScale(scale), q, next, max);
    case Scale::Method::divide:
      return code_run<Made::division, stream>(x, count, OneScale(scale), q, next, max);
    case Scale::Method::none:
      std::memset(q, 0, static_cast<std::size_t>(count));
      if constexpr (!std::is_same_v<Max, NoMax>) add_run(max, next, count);
  }
}

// The scales of a run of elements if each column has its own scale. (OneScale is one scale for
// all.)
struct ScaleOfColumn {
  cpu::ColumnScales scales;
  HWY_INLINE VF lower_at(std::int64_t col) const { return hn::Load(F32(), scales.lower + col); }
  HWY_INLINE VF upper_at(std::int64_t col) const { return hn::Load(F32(), scales.upper + col); }
  HWY_INLINE VU divided(VF x, std::int64_t col) const {
    const VF divisor = hn::Load(F32(), scales.divisor + col);
    const VF t = hn::Mul(hn::Set(F32(), 127.0f), hn::Div(x, divisor));
    return rounded(hn::IfThenElseZero(hn::Ne(divisor, hn::Zero(F32())), t));
  }
};

// Returns a pointer to the element in row r and column c.
template <class T>
HWY_INLINE const T* row(ConstAnyMatrix m, std::int64_t r, std::int64_t c = 0) {
  return static_cast<const T*>(m.data) + r * m.stride + c;
}
HWY_INLINE std::int8_t* row(MatrixView<std::int8_t> m, std::int64_t r, std::int64_t c = 0) {
  return m.data + r * m.stride + c;
}

// Calls f(T()), where T is the element type.
template <class F>
HWY_INLINE auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      return f(half());
    case DType::bf16:
      return f(bfloat16());
    default:
      return f(float());
  }
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
