// SPDX-License-Identifier: Apache-2.0
// Engine zone: the rotation, alone and with rowwise quantization.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/rotate.cpp"
#include "hwy/foreach_target.h"
//
#include "core/rehearsal.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/rotated_rows.hpp"
#include "quant/cpu/rows-inl.h"
#include "quant/rotate.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Floor of g = 256: 16 additions and subtractions, 4 products and, with 8 lanes, 4 shuffles for
// each vector, 2 loads and 2 stores of the first-level cache besides the input: 10 to 12 cycles for
// 8 elements. Addition is commutative to the bit, so one sum serves lanes that add in either order.

// The largest magnitude seen, as bits that order NaN over Inf over numbers.
struct LargestOf {
  using V = hn::Vec<I32>;
  V a, b, c, d;

  HWY_INLINE LargestOf()
      : a(hn::Zero(I32())), b(hn::Zero(I32())), c(hn::Zero(I32())), d(hn::Zero(I32())) {}
  static HWY_INLINE V magnitude(VF v) {
    return hn::And(hn::BitCast(I32(), v), hn::Set(I32(), hwy::LimitsMax<std::int32_t>()));
  }
  HWY_INLINE void add(VF v) { a = hn::Max(a, magnitude(v)); }
  HWY_INLINE void add(VF v, VF w, VF x, VF y) {
    a = hn::Max(a, magnitude(v));
    b = hn::Max(b, magnitude(w));
    c = hn::Max(c, magnitude(x));
    d = hn::Max(d, magnitude(y));
  }
  HWY_INLINE std::uint32_t result() const {
    const auto all = hn::Max(hn::Max(a, b), hn::Max(c, d));
    return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), all)));
  }
};

#if HWY_TARGET == HWY_SCALAR
// out[0, g) = the rotated x[0, g).
template <int g, class T>
HWY_INLINE void rotate_one(const T* x, float* out, LargestOf& largest) {
  for (int i = 0; i < g; ++i)
    out[i] = hn::GetLane(widen(x + i));
  rotate_group(out, g);
  for (int i = 0; i < g; ++i)
    largest.add(hn::Set(F32(), out[i]));
}
#else
HWY_INLINE VF half_of_sum(VF pair, VF other_pair) {
  return hn::Mul(hn::Set(F32(), 0.5f), hn::Add(pair, other_pair));
}

// The stage that joins element i of a, b, c and d.
HWY_INLINE void stage(VF& a, VF& b, VF& c, VF& d) {
  const VF h = half_of_sum(hn::Add(a, b), hn::Add(c, d));
  const VF first = hn::Sub(h, d);
  const VF second = hn::Sub(h, c);
  c = hn::Sub(h, b);
  d = hn::Sub(h, a);
  a = first;
  b = second;
}

// The stage of stride 1, within four lanes.
HWY_INLINE VF stage_of_lanes(VF v) {
  const VF pairs = hn::Add(v, hn::Shuffle2301(v));
  return hn::Sub(half_of_sum(pairs, hn::Shuffle0123(pairs)), hn::Shuffle0123(v));
}

// The vectors of 16 elements, and the stages of strides 1 and 4 on them.
inline constexpr int vectors_of_16 = static_cast<int>(lanes >= 16 ? 1 : 16 / lanes);

HWY_INLINE void first_two_stages(VF* v) {
  for (int i = 0; i < vectors_of_16; ++i)
    v[i] = stage_of_lanes(v[i]);
#if HWY_TARGET == HWY_AVX3
  const VF pairs = hn::Add(v[0], hn::SwapAdjacentBlocks(v[0]));
  v[0] =
      hn::Sub(half_of_sum(pairs, hn::ReverseBlocks(F32(), pairs)), hn::ReverseBlocks(F32(), v[0]));
#elif HWY_TARGET == HWY_AVX2
  const VF swapped_low = hn::SwapAdjacentBlocks(v[0]);
  const VF swapped_high = hn::SwapAdjacentBlocks(v[1]);
  const VF h = half_of_sum(hn::Add(v[0], swapped_low), hn::Add(v[1], swapped_high));
  v[0] = hn::Sub(h, swapped_high);
  v[1] = hn::Sub(h, swapped_low);
#else
  stage(v[0], v[1], v[2], v[3]);
#endif
}

// The stages of strides 1, 4 and, if there are 64 elements, 16.
template <int count, bool last, class T>
HWY_INLINE void first_stages(const T* x, float* out, LargestOf& largest) {
  VF v[count / 16 * vectors_of_16];
  for (int i = 0; i < count / 16 * vectors_of_16; ++i)
    v[i] = widen(x + i * lanes);
  for (int i = 0; i < count / 16; ++i)
    first_two_stages(v + i * vectors_of_16);
  if constexpr (count == 64)
    for (int i = 0; i < vectors_of_16; ++i)
      stage(v[i], v[i + vectors_of_16], v[i + 2 * vectors_of_16], v[i + 3 * vectors_of_16]);
  for (int i = 0; i < count / 16 * vectors_of_16; ++i) {
    hn::StoreU(v[i], F32(), out + i * lanes);
    if constexpr (last) largest.add(v[i]);
  }
}

// The stage of a stride of whole vectors.
template <int stride, bool last>
HWY_INLINE void later_stage(float* v, LargestOf& largest) {
  const F32 d;
  for (int i = 0; i < stride; i += static_cast<int>(lanes)) {
    VF a = hn::LoadU(d, v + i);
    VF b = hn::LoadU(d, v + i + stride);
    VF c = hn::LoadU(d, v + i + 2 * stride);
    VF e = hn::LoadU(d, v + i + 3 * stride);
    stage(a, b, c, e);
    hn::StoreU(a, d, v + i);
    hn::StoreU(b, d, v + i + stride);
    hn::StoreU(c, d, v + i + 2 * stride);
    hn::StoreU(e, d, v + i + 3 * stride);
    if constexpr (last) largest.add(a, b, c, e);
  }
}

// out[0, g) = the rotated x[0, g).
template <int g, class T>
HWY_INLINE void rotate_one(const T* x, float* out, LargestOf& largest) {
  if constexpr (g == 16) {
    first_stages<16, true>(x, out, largest);
  } else {
    for (int i = 0; i < g; i += 64)
      first_stages<64, g == 64>(x + i, out + i, largest);
    if constexpr (g >= 256)
      for (int i = 0; i < g; i += 256)
        later_stage<64, g == 256>(out + i, largest);
    if constexpr (g == 1024) later_stage<256, true>(out, largest);
  }
}

#endif

// count: a multiple of g.
template <int g, class T>
HWY_INLINE void rotate_run(const T* x, std::int64_t count, float* out, LargestOf& largest) {
  for (std::int64_t i = 0; i < count; i += g)
    rotate_one<g>(x + i, out + i, largest);
}

// y[0, count) = the rotated x[0, count), which may be the same elements.
template <int g, class T, class Y>
HWY_INLINE void rotate_to(const T* x, std::int64_t count, Y* y) {
  LargestOf ignored;
  alignas(64) float group[g];
  for (std::int64_t i = 0; i < count; i += g) {
    rotate_one<g>(x + i, group, ignored);
    for (std::int64_t j = 0; j < g; j += lanes)
      narrow_any(hn::Load(F32(), group + j), y + i + j);
  }
}

// Rows [begin, end). Each element comes from memory once: while a part of a row is coded from the
// scratch, the same part of the next row is read and rotated.
template <int g, bool stream, class T>
void rotated_rows(const Request& o, std::int64_t begin, std::int64_t end, float* scratch) {
  const std::int64_t cols = o.x.cols;
  float* now = scratch;
  float* next = scratch + cpu::rotated_rows_scratch(cols) / 2;
  LargestOf largest;
  rotate_run<g>(row<T>(o.x, begin), cols, now, largest);
  for (std::int64_t r = begin; r < end; ++r) {
    const float absmax = absmax_from_bits(largest.result());
    core::store(o.q.absmax.data(), r, absmax);
    const Scale scale = Scale::of(absmax);
    std::int8_t* const codes = row(o.q.codes, r);
    const T* const x = r + 1 < end ? row<T>(o.x, r + 1) : nullptr;
    largest = LargestOf();
    NoMax none;
    // Of a row at another address each part would begin and end with stores through the caches, to
    // lines that are streamed to: a third of the speed.
    const bool aligned = reinterpret_cast<std::uintptr_t>(codes) % quad == 0;
    const std::int64_t part = stream && !aligned ? cols : g < 256 ? 256 : g;
    for (std::int64_t c = 0; c < cols; c += part) {
      const std::int64_t count = std::min(part, cols - c);
      if (x != nullptr) rotate_run<g>(x + c, count, next + c, largest);
      code_run<stream>(now + c, count, scale, codes + c, now + c, none);
    }
    std::swap(now, next);
  }
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
  const std::int64_t scratch_size = rotated_rows_scratch(o.x.cols);
  float* const scratch = frame.take<float>(threads * scratch_size);
  const auto kernel = rotated_rows_kernel(state.features);
  const std::int64_t rows = std::max<std::int64_t>(1, elements / o.x.cols);
  state.threads.for_ranges(o.x.rows, rows, [&](std::int64_t begin, std::int64_t end, int worker) {
    kernel(o, begin, end, config.stream, scratch + worker * scratch_size);
  });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
