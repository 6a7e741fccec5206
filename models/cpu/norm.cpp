// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: RMSNorm and LayerNorm. A row is read from memory once: what follows the
// first pass over it finds it in the cache.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/norm.cpp"
#include "hwy/foreach_target.h"
//
#include "core/assert.hpp"
#include "models/cpu/vectors-inl.h"
#include "models/kernels.hpp"

#ifndef SWITCHBACK_MODELS_NORM_ONCE
#define SWITCHBACK_MODELS_NORM_ONCE
namespace switchback::models {
inline constexpr float norm_epsilon = 1e-5f;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

template <class T>
HWY_INLINE const T* row_of(const ConstAnyMatrix& m, std::int64_t r) {
  return static_cast<const T*>(m.data) + r * m.stride;
}
template <class T>
HWY_INLINE T* row_of(const AnyMatrix& m, std::int64_t r) {
  return static_cast<T*>(m.data) + r * m.stride;
}

// s = x + add, rounded to T as it is stored: the statistics are those of what backward reads.
// Returns the row to read on from.
template <class T, class Args>
HWY_INLINE const T* summed_row(const Args& o, std::int64_t r) {
  const T* const x = row_of<T>(o.x, r);
  if (o.add.data == nullptr) return x;
  const T* const more = row_of<T>(o.add, r);
  T* const s = row_of<T>(o.sum, r);
  for (std::int64_t i = 0; i < o.x.cols; i += lanes) {
    const std::int64_t n = o.x.cols - i;
    store(hn::Add(load(x + i, n), load(more + i, n)), s + i, n);
  }
  return s;
}

void RmsRows(const RmsNorm& o, std::int64_t begin, std::int64_t end) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = summed_row<T>(o, r);
      VF squares = hn::Zero(F32());
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const VF v = load(s + i, cols - i);
        squares = hn::MulAdd(v, v, squares);
      }
      const float rstd =
          1.0f / std::sqrt(sum_of_lanes(squares) / static_cast<float>(cols) + norm_epsilon);
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      T* const y = row_of<T>(o.y, r);
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF scaled = hn::Mul(load(s + i, n), set(rstd));
        store(hn::Mul(scaled, load(o.gain.data() + i, n)), y + i, n);
      }
    }
  });
}

// dgain[0, cols) is of this block of rows alone.
void RmsBackwardRows(const RmsNormBackward& o, std::int64_t begin, std::int64_t end, float* dgain) {
  with_type(o.s.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.s.cols;
    std::fill(dgain, dgain + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = row_of<T>(o.s, r);
      const T* const dy = row_of<T>(o.dy, r);
      T* const dx = row_of<T>(o.dx, r);
      const float rstd = o.rstd[static_cast<std::size_t>(r)];
      VF dot = hn::Zero(F32());
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF normal = hn::Mul(load(s + i, n), set(rstd));
        const VF product = hn::Mul(load(dy + i, n), normal);
        store(hn::Add(load(dgain + i, n), product), dgain + i, n);
        dot = hn::MulAdd(product, load(o.gain.data() + i, n), dot);
      }
      const float mean = sum_of_lanes(dot) / static_cast<float>(cols);
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF normal = hn::Mul(load(s + i, n), set(rstd));
        const VF scaled = hn::Mul(load(dy + i, n), load(o.gain.data() + i, n));
        const VF change = hn::Mul(hn::NegMulAdd(normal, set(mean), scaled), set(rstd));
        store(hn::Add(load(dx + i, n), change), dx + i, n);
      }
    }
  });
}

void LayerRows(const LayerNorm& o, std::int64_t begin, std::int64_t end) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const auto count = static_cast<float>(cols);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = summed_row<T>(o, r);
      VF sums = hn::Zero(F32());
      for (std::int64_t i = 0; i < cols; i += lanes)
        sums = hn::Add(sums, load(s + i, cols - i));
      const float mean = sum_of_lanes(sums) / count;
      VF squares = hn::Zero(F32());
      std::int64_t i = 0;
      for (; i + lanes <= cols; i += lanes) {
        const VF v = hn::Sub(q::widen(s + i), set(mean));
        squares = hn::MulAdd(v, v, squares);
      }
      float variance = sum_of_lanes(squares);
      for (; i < cols; ++i) {
        const float v = static_cast<float>(s[i]) - mean;
        variance += v * v;
      }
      const float rstd = 1.0f / std::sqrt(variance / count + norm_epsilon);
      o.mean[static_cast<std::size_t>(r)] = mean;
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      T* const y = row_of<T>(o.y, r);
      for (i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF normal = hn::Mul(hn::Sub(load(s + i, n), set(mean)), set(rstd));
        store(hn::MulAdd(normal, load(o.gain.data() + i, n), load(o.bias.data() + i, n)), y + i, n);
      }
    }
  });
}

// dgain and dbias [0, cols) are of this block of rows alone.
void LayerBackwardRows(const LayerNormBackward& o, std::int64_t begin, std::int64_t end,
                       float* dgain, float* dbias) {
  with_type(o.s.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.s.cols;
    const auto count = static_cast<float>(cols);
    std::fill(dgain, dgain + cols, 0.0f);
    std::fill(dbias, dbias + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = row_of<T>(o.s, r);
      const T* const dy = row_of<T>(o.dy, r);
      T* const dx = row_of<T>(o.dx, r);
      const float mean = o.mean[static_cast<std::size_t>(r)];
      const float rstd = o.rstd[static_cast<std::size_t>(r)];
      VF sum = hn::Zero(F32());
      VF dot = hn::Zero(F32());
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF normal = hn::Mul(hn::Sub(load(s + i, n), set(mean)), set(rstd));
        const VF g = load(dy + i, n);  // zero past the end, and so are the products
        store(hn::MulAdd(g, normal, load(dgain + i, n)), dgain + i, n);
        store(hn::Add(load(dbias + i, n), g), dbias + i, n);
        const VF scaled = hn::Mul(g, load(o.gain.data() + i, n));
        sum = hn::Add(sum, scaled);
        dot = hn::MulAdd(scaled, normal, dot);
      }
      const float mean_of_scaled = sum_of_lanes(sum) / count;
      const float mean_of_products = sum_of_lanes(dot) / count;
      for (std::int64_t i = 0; i < cols; i += lanes) {
        const std::int64_t n = cols - i;
        const VF normal = hn::Mul(hn::Sub(load(s + i, n), set(mean)), set(rstd));
        const VF scaled = hn::Mul(load(dy + i, n), load(o.gain.data() + i, n));
        const VF centred = hn::Sub(scaled, set(mean_of_scaled));
        store(hn::Mul(hn::NegMulAdd(normal, set(mean_of_products), centred), set(rstd)), dx + i, n);
      }
    }
  });
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(RmsRows);
HWY_EXPORT(RmsBackwardRows);
HWY_EXPORT(LayerRows);
HWY_EXPORT(LayerBackwardRows);

namespace {

constexpr std::int64_t norm_rows = 16;   // of a task
constexpr std::int64_t block_rows = 64;  // whose parameter gradients are summed first

std::size_t norm_table(const ContextState& state) {
  return quant::cpu::table_index(state.features);
}

// to[c] (+)= the sums of blocks of rows, in order.
void add_blocks(ContextState& state, const float* sums, std::int64_t blocks, std::int64_t stride,
                std::span<float> to, bool accumulate) {
  constexpr std::int64_t columns = 256;
  state.threads.for_ranges(static_cast<std::int64_t>(to.size()), columns,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t c = begin; c < end; ++c) {
                               float sum = 0;
                               for (std::int64_t b = 0; b < blocks; ++b)
                                 sum += sums[b * stride + c];
                               float& total = to[static_cast<std::size_t>(c)];
                               total = accumulate ? total + sum : sum;
                             }
                           });
}

}  // namespace

void rms_norm(ContextState& state, const RmsNorm& o) {
  SWITCHBACK_ASSERT((o.add.data == nullptr) == (o.sum.data == nullptr));
  const auto kernel = HWY_DISPATCH_TABLE(RmsRows)[norm_table(state)];
  state.threads.for_ranges(o.x.rows, norm_rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end);
  });
}

void rms_norm_backward(ContextState& state, const RmsNormBackward& o) {
  const auto kernel = HWY_DISPATCH_TABLE(RmsBackwardRows)[norm_table(state)];
  const std::int64_t blocks = (o.s.rows + block_rows - 1) / block_rows;
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(blocks * o.s.cols);
  state.threads.for_ranges(o.s.rows, block_rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, sums + begin / block_rows * o.s.cols);
  });
  add_blocks(state, sums, blocks, o.s.cols, o.dgain, o.accumulate);
}

void layer_norm(ContextState& state, const LayerNorm& o) {
  SWITCHBACK_ASSERT((o.add.data == nullptr) == (o.sum.data == nullptr));
  const auto kernel = HWY_DISPATCH_TABLE(LayerRows)[norm_table(state)];
  state.threads.for_ranges(o.x.rows, norm_rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end);
  });
}

void layer_norm_backward(ContextState& state, const LayerNormBackward& o) {
  const auto kernel = HWY_DISPATCH_TABLE(LayerBackwardRows)[norm_table(state)];
  const std::int64_t cols = o.s.cols;
  const std::int64_t blocks = (o.s.rows + block_rows - 1) / block_rows;
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(2 * blocks * cols);
  state.threads.for_ranges(o.s.rows, block_rows, [&](std::int64_t begin, std::int64_t end, int) {
    float* const block = sums + begin / block_rows * 2 * cols;
    kernel(o, begin, end, block, block + cols);
  });
  add_blocks(state, sums, blocks, 2 * cols, o.dgain, o.accumulate);
  add_blocks(state, sums + cols, blocks, 2 * cols, o.dbias, o.accumulate);
}

}  // namespace switchback::models
#endif
