// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: RMSNorm and LayerNorm on the CPU. A row is read from memory once: later
// passes over the row find it in the cache.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "studies/models/cpu/norm.cpp"
#include "hwy/foreach_target.h"
//
#include <initializer_list>

#include "core/assert.hpp"
#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cpu/streams-inl.h"

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

enum class Statistic { sum, squares };

// A row of the norm's input s = x, or x + add. The sum is rounded to T as it is stored, so that the
// statistics are those of the values that backward reads.
template <class T>
struct NormRow {
  const T* x;
  const T* add;  // null if s is x
  T* sum;
  bool asks;
  const T* next;  // the next row of x
  template <class Args>
  HWY_INLINE NormRow(const Args& o, std::int64_t r)
      : x(row_of<T>(o.x, r)),
        add(o.add.data == nullptr ? nullptr : row_of<T>(o.add, r)),
        sum(o.add.data == nullptr ? nullptr : row_of<T>(o.sum, r)),
        asks(asks_ahead<T>()),
        next(x + o.x.stride) {}
  template <int count>
  HWY_INLINE void parts(std::int64_t i, std::int64_t n, VF* v) const {
    load_parts<count>(x + i, n, v);
    if (add == nullptr) return;
    VF more[count];
    load_parts<count>(add + i, n, more);
    for (int j = 0; j < count; ++j)
      v[j] = hn::Add(v[j], more[j]);
  }
};

// Whether x + add is stored in the last pass over the row, with stores that bypass the caches. f32
// is added again then, with the same bits. bf16 is rounded only once, so it is stored in the first
// pass.
template <bool past, class T>
inline constexpr bool sum_is_last = past&& std::is_same_v<T, float>;

// The sum of s or of s² over a row. If it also stores s = x + add, `row` reads the stored s
// afterwards.
template <Statistic statistic, bool past, class T>
HWY_INLINE float summed_row(NormRow<T>& row, std::int64_t cols) {
  VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  const bool stores = row.add != nullptr && !sum_is_last<past, T>;
  for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
    ask_ahead<count>(row.x + i, row.asks);
    if (row.add != nullptr) ask_ahead<count>(row.add + i, row.asks);
    if (stores) ask_ahead<count>(row.sum + i, row.asks);
    VF v[count];
    row.template parts<count>(i, n, v);
    if (stores) {
      store_parts<count>(v, row.sum + i, n);
      load_parts<count>(row.sum + i, n, v);
    }
    for (int j = 0; j < count; ++j)
      sums[j] = statistic == Statistic::squares ? hn::MulAdd(v[j], v[j], sums[j])
                                                : hn::Add(sums[j], v[j]);
  });
  if (stores) {
    row.x = row.sum;
    row.add = nullptr;
  }
  return sum_of_parts(sums);
}

// Last pass over a row: stores y = f(s), and x + add if that is not stored yet. The memory would be
// idle meanwhile, so x of the next row is prefetched: that took 0.82 (RMSNorm) and 0.87 (LayerNorm)
// of the time on Zen 4; when `add` is prefetched too, 0.85 and 1. f32 gained nothing.
template <bool past, class T, class F>
HWY_INLINE void put_row(const NormRow<T>& row, T* y, std::int64_t cols, F&& f) {
  for_parts(cols, [&]<int count>(Count<count> parts, std::int64_t i, std::int64_t n) HWY_ATTR {
    if constexpr (!past) ask_ahead<count>(y + i, row.asks);
    if (!std::is_same_v<T, float> && !row.asks) q::ask_for<count>(row.next + i);
    VF v[count];
    row.template parts<count>(i, n, v);
    if (sum_is_last<past, T> && row.add != nullptr) put_parts<past, count>(v, row.sum + i, n);
    f(parts, v, i, n);
    put_parts<past, count>(v, y + i, n);
  });
}

void RmsRows(const RmsNorm& o, std::int64_t begin, std::int64_t end, Stores stores) {
  with_type(o.x.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const float* const gain = o.gain.data();
    for (std::int64_t r = begin; r < end; ++r) {
      NormRow<T> row(o, r);
      const float squares = summed_row<Statistic::squares, past>(row, cols);
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(cols) + norm_epsilon);
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      put_row<past>(row, row_of<T>(o.y, r), cols,
                    [&]<int count>(Count<count>, VF* v, std::int64_t i, std::int64_t n) HWY_ATTR {
                      for (int j = 0; j < count; ++j)
                        v[j] = hn::Mul(hn::Mul(v[j], set(rstd)), load_part<count>(gain + i, j, n));
                    });
    }
    if constexpr (past) hwy::FlushStream();
  });
}

template <int count, class T>
HWY_INLINE void rms_backward_part(const T* s, const T* dy, const float* gain, float* dgain,
                                  float rstd, std::int64_t n, VF* dots) {
  VF x[count], g[count];
  load_parts<count>(s, n, x);
  load_parts<count>(dy, n, g);
  for (int j = 0; j < count; ++j) {
    const VF product = hn::Mul(g[j], hn::Mul(x[j], set(rstd)));
    store_part<count>(hn::Add(load_part<count>(dgain, j, n), product), dgain, j, n);
    dots[j] = hn::MulAdd(product, load_part<count>(gain, j, n), dots[j]);
  }
}

// Backward of RMSNorm for a block of rows. It overwrites dgain[0, cols), the sums of this block
// alone.
void RmsBackwardRows(const RmsNormBackward& o, std::int64_t begin, std::int64_t end, float* dgain,
                     Stores stores) {
  with_type(o.s.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.s.cols;
    const bool asks = asks_ahead<T>();
    std::fill(dgain, dgain + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = row_of<T>(o.s, r);
      const T* const dy = row_of<T>(o.dy, r);
      T* const dx = row_of<T>(o.dx, r);
      const float rstd = o.rstd[static_cast<std::size_t>(r)];
      const float* const gain = o.gain.data();
      VF dots[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(s + i, asks);
        ask_ahead<count>(dy + i, asks);
        rms_backward_part<count>(s + i, dy + i, gain + i, dgain + i, rstd, n, dots);
      });
      const float mean = sum_of_parts(dots) / static_cast<float>(cols);
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(dx + i, asks);
        VF x[count], g[count], to[count];
        load_parts<count>(s + i, n, x);
        load_parts<count>(dy + i, n, g);
        load_parts<count>(dx + i, n, to);
        for (int j = 0; j < count; ++j) {
          const VF normal = hn::Mul(x[j], set(rstd));
          const VF scaled = hn::Mul(g[j], load_part<count>(gain + i, j, n));
          const VF change = hn::Mul(hn::NegMulAdd(normal, set(mean), scaled), set(rstd));
          to[j] = hn::Add(to[j], change);
        }
        store_parts<count>(to, dx + i, n);
      });
    }
  });
}

void LayerRows(const LayerNorm& o, std::int64_t begin, std::int64_t end, Stores stores) {
  with_type(o.x.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const auto elements = static_cast<float>(cols);
    const float* const gain = o.gain.data();
    const float* const bias = o.bias.data();
    for (std::int64_t r = begin; r < end; ++r) {
      NormRow<T> row(o, r);
      const float mean = summed_row<Statistic::sum, past>(row, cols) / elements;
      VF squares[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        VF v[count];
        row.template parts<count>(i, n, v);
        for (int j = 0; j < count; ++j) {
          v[j] = hn::Sub(v[j], set(mean));
          if (count == 1 && n < lanes)
            v[j] = hn::IfThenElseZero(hn::FirstN(F32(), static_cast<std::size_t>(n)), v[j]);
          squares[j] = hn::MulAdd(v[j], v[j], squares[j]);
        }
      });
      const float rstd = 1.0f / std::sqrt(sum_of_parts(squares) / elements + norm_epsilon);
      o.mean[static_cast<std::size_t>(r)] = mean;
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      put_row<past>(row, row_of<T>(o.y, r), cols,
                    [&]<int count>(Count<count>, VF* v, std::int64_t i, std::int64_t n) HWY_ATTR {
                      for (int j = 0; j < count; ++j)
                        v[j] = hn::MulAdd(hn::Mul(hn::Sub(v[j], set(mean)), set(rstd)),
                                          load_part<count>(gain + i, j, n),
                                          load_part<count>(bias + i, j, n));
                    });
    }
    if constexpr (past) hwy::FlushStream();
  });
}

struct LayerBackwardRow {
  const float* gain;
  float* dgain;
  float* dbias;
  float mean, rstd;
};
// Backward of LayerNorm for `count` vectors: adds to dgain and dbias, and to the sums of dy · gain
// and of dy · gain times the normalised value.
template <int count, class T>
HWY_INLINE void layer_backward_part(const T* s, const T* dy, const LayerBackwardRow& row,
                                    std::int64_t i, std::int64_t n, VF* sums, VF* dots) {
  VF x[count], g[count];
  load_parts<count>(s + i, n, x);
  load_parts<count>(dy + i, n, g);  // zero past the end of the row, and so are products with it
  for (int j = 0; j < count; ++j) {
    const VF normal = hn::Mul(hn::Sub(x[j], set(row.mean)), set(row.rstd));
    float* const dgain = row.dgain + i;
    float* const dbias = row.dbias + i;
    store_part<count>(hn::MulAdd(g[j], normal, load_part<count>(dgain, j, n)), dgain, j, n);
    store_part<count>(hn::Add(load_part<count>(dbias, j, n), g[j]), dbias, j, n);
    const VF scaled = hn::Mul(g[j], load_part<count>(row.gain + i, j, n));
    sums[j] = hn::Add(sums[j], scaled);
    dots[j] = hn::MulAdd(scaled, normal, dots[j]);
  }
}

// Backward of LayerNorm for a block of rows. It overwrites dgain and dbias [0, cols), the sums of
// this block alone.
void LayerBackwardRows(const LayerNormBackward& o, std::int64_t begin, std::int64_t end,
                       float* dgain, float* dbias, Stores stores) {
  with_type(o.s.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.s.cols;
    const bool asks = asks_ahead<T>();
    const auto count = static_cast<float>(cols);
    std::fill(dgain, dgain + cols, 0.0f);
    std::fill(dbias, dbias + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = row_of<T>(o.s, r);
      const T* const dy = row_of<T>(o.dy, r);
      T* const dx = row_of<T>(o.dx, r);
      const float mean = o.mean[static_cast<std::size_t>(r)];
      const float rstd = o.rstd[static_cast<std::size_t>(r)];
      const LayerBackwardRow row = {o.gain.data(), dgain, dbias, mean, rstd};
      VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      VF dots[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(s + i, asks);
        ask_ahead<count>(dy + i, asks);
        layer_backward_part<count>(s, dy, row, i, n, sums, dots);
      });
      const float mean_of_scaled = sum_of_parts(sums) / count;
      const float mean_of_products = sum_of_parts(dots) / count;
      const float* const gain = o.gain.data();
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        if constexpr (!past) ask_ahead<count>(dx + i, asks);
        VF x[count], g[count];
        load_parts<count>(s + i, n, x);
        load_parts<count>(dy + i, n, g);
        for (int j = 0; j < count; ++j) {
          const VF normal = hn::Mul(hn::Sub(x[j], set(mean)), set(rstd));
          const VF scaled = hn::Mul(g[j], load_part<count>(gain + i, j, n));
          const VF centred = hn::Sub(scaled, set(mean_of_scaled));
          g[j] = hn::Mul(hn::NegMulAdd(normal, set(mean_of_products), centred), set(rstd));
        }
        put_parts<past, count>(g, dx + i, n);
      });
    }
    if constexpr (past) hwy::FlushStream();
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

// Gradients of parameters are summed within blocks of 64 rows first.
constexpr std::int64_t block_rows = 64;

std::int64_t norm_rows(const ContextState& state, std::int64_t rows) {
  return size_of_task(state, rows, 16, 32);
}

template <class Args>
Stores norm_stores(const core::CpuFeatures& features, const Args& o) {
  return {goes_past_caches(features, o.y) &&
              (o.sum.data == nullptr || goes_past_caches(features, o.sum)),
          features.avx512_bf16};
}

std::size_t norm_table(const ContextState& state) {
  return quant::cpu::table_index(state.features);
}

// Adds up the sums of the blocks of rows, in order, and stores or adds them to each vector in `to`.
// A block stores the sums for all vectors one after the other. At least half of them come from the
// caches of other cores, which may be on another die (160 ns per line, two dies of Zen 4), so they
// are prefetched before they are added.
void add_blocks(ContextState& state, const float* sums, std::int64_t blocks,
                std::initializer_list<std::span<float>> to, bool accumulate) {
  constexpr std::int64_t columns = 256;
  constexpr std::int64_t ahead = 16;  // blocks
  constexpr std::int64_t line = 16;
  const auto cols = static_cast<std::int64_t>(to.begin()->size());
  const std::int64_t stride = static_cast<std::int64_t>(to.size()) * cols;
  const std::int64_t across = (cols + columns - 1) / columns;
  state.threads.for_each(static_cast<std::int64_t>(to.size()) * across,
                         [&](std::int64_t task, int) {
                           const std::int64_t begin = task % across * columns;
                           const std::int64_t count = std::min(columns, cols - begin);
                           const float* const from = sums + task / across * cols + begin;
                           const auto ask = [&](std::int64_t block) {
                             for (std::int64_t c = 0; c < count && block < blocks; c += line)
                               hwy::Prefetch(from + block * stride + c);
                           };
                           for (std::int64_t b = 0; b < ahead; ++b)
                             ask(b);
                           float sum[columns] = {};
                           for (std::int64_t b = 0; b < blocks; ++b) {
                             ask(b + ahead);
                             for (std::int64_t c = 0; c < count; ++c)
                               sum[c] += from[b * stride + c];
                           }
                           float* const total = (to.begin() + task / across)->data() + begin;
                           for (std::int64_t c = 0; c < count; ++c)
                             total[c] = accumulate ? total[c] + sum[c] : sum[c];
                         });
}

}  // namespace

namespace cpu {

void rms_norm(ContextState& state, const RmsNorm& o) {
  SWITCHBACK_ASSERT((o.add.data == nullptr) == (o.sum.data == nullptr));
  const auto kernel = HWY_DISPATCH_TABLE(RmsRows)[norm_table(state)];
  const Stores stores = norm_stores(state.features, o);
  state.threads.for_ranges(
      o.x.rows, norm_rows(state, o.x.rows),
      [&](std::int64_t begin, std::int64_t end, int) { kernel(o, begin, end, stores); });
}

void rms_norm_backward(ContextState& state, const RmsNormBackward& o) {
  const auto kernel = HWY_DISPATCH_TABLE(RmsBackwardRows)[norm_table(state)];
  const std::int64_t blocks = (o.s.rows + block_rows - 1) / block_rows;
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(blocks * o.s.cols);
  const core::PerWorker<float> own(frame, state.threads.count(), o.s.cols);
  // Dx is read and added to, so stores do not bypass the caches.
  const Stores stores = {false, state.features.avx512_bf16};
  state.threads.for_ranges(
      o.s.rows, block_rows, [&](std::int64_t begin, std::int64_t end, int worker) {
        kernel(o, begin, end, own.of(worker), stores);
        std::copy_n(own.of(worker), o.s.cols, sums + begin / block_rows * o.s.cols);
      });
  add_blocks(state, sums, blocks, {o.dgain}, o.accumulate);
}

void layer_norm(ContextState& state, const LayerNorm& o) {
  SWITCHBACK_ASSERT((o.add.data == nullptr) == (o.sum.data == nullptr));
  const auto kernel = HWY_DISPATCH_TABLE(LayerRows)[norm_table(state)];
  const Stores stores = norm_stores(state.features, o);
  state.threads.for_ranges(
      o.x.rows, norm_rows(state, o.x.rows),
      [&](std::int64_t begin, std::int64_t end, int) { kernel(o, begin, end, stores); });
}

void layer_norm_backward(ContextState& state, const LayerNormBackward& o) {
  const auto kernel = HWY_DISPATCH_TABLE(LayerBackwardRows)[norm_table(state)];
  const std::int64_t cols = o.s.cols;
  const std::int64_t blocks = (o.s.rows + block_rows - 1) / block_rows;
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(2 * blocks * cols);
  const core::PerWorker<float> own(frame, state.threads.count(), 2 * cols);
  // In place, the lines are in the cache already, so stores do not bypass it.
  const Stores stores = {
      goes_past_caches(state.features, o.dx) && o.dx.data != o.dy.data && o.dx.data != o.s.data,
      state.features.avx512_bf16};
  state.threads.for_ranges(o.s.rows, block_rows,
                           [&](std::int64_t begin, std::int64_t end, int worker) {
                             float* const block = own.of(worker);
                             kernel(o, begin, end, block, block + cols, stores);
                             std::copy_n(block, 2 * cols, sums + begin / block_rows * 2 * cols);
                           });
  add_blocks(state, sums, blocks, {o.dgain, o.dbias}, o.accumulate);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
