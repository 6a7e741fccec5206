// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: RMSNorm and LayerNorm. A row is read from memory once: what follows the
// first pass over it finds it in the cache.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/norm.cpp"
#include "hwy/foreach_target.h"
//
#include "core/assert.hpp"
#include "models/cpu/engine.hpp"
#include "models/cpu/streams-inl.h"

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

// s = x (+ add) of a row, rounded to T as it is stored: the statistics are those of what backward
// reads. A sum that goes past the caches is stored in the last pass over the row; f32 added again
// have the same bits.
template <class T>
struct NormRow {
  const T* x;
  const T* add;  // null: x is s
  T* sum;
  bool asks;
  template <class Args>
  HWY_INLINE NormRow(const Args& o, std::int64_t r)
      : x(row_of<T>(o.x, r)),
        add(o.add.data == nullptr ? nullptr : row_of<T>(o.add, r)),
        sum(o.add.data == nullptr ? nullptr : row_of<T>(o.sum, r)),
        asks(asks_ahead<T>()) {}
  template <int count>
  HWY_INLINE VF part(std::int64_t i, int j, std::int64_t n) const {
    const VF v = load_part<count>(x + i, j, n);
    return add == nullptr ? v : hn::Add(v, load_part<count>(add + i, j, n));
  }
};

// The sum of s or of s² over a row, which the caller reads on with `row`.
template <Statistic statistic, bool past, class T>
HWY_INLINE float summed_row(NormRow<T>& row, std::int64_t cols) {
  VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
    ask_ahead<count>(row.x + i, row.asks);
    if (row.add != nullptr) ask_ahead<count>(row.add + i, row.asks);
    if (row.add != nullptr && !past) ask_ahead<count>(row.sum + i, row.asks);
    for (int j = 0; j < count; ++j) {
      VF v = row.template part<count>(i, j, n);
      if (row.add != nullptr && !past) {
        store_part<count>(v, row.sum + i, j, n);
        v = load_part<count>(row.sum + i, j, n);
      }
      sums[j] = statistic == Statistic::squares ? hn::MulAdd(v, v, sums[j]) : hn::Add(sums[j], v);
    }
  });
  if (row.add != nullptr && !past) {
    row.x = row.sum;
    row.add = nullptr;
  }
  return sum_of_parts(sums);
}

// y = f(s, i, j, n) of a row, and what of its sum is not stored yet.
template <bool past, class T, class F>
HWY_INLINE void put_row(const NormRow<T>& row, T* y, std::int64_t cols, F&& f) {
  for_parts(cols, [&]<int count>(Count<count> parts, std::int64_t i, std::int64_t n) HWY_ATTR {
    if constexpr (!past) ask_ahead<count>(y + i, row.asks);
    for (int j = 0; j < count; ++j) {
      const VF v = row.template part<count>(i, j, n);
      if (past && row.add != nullptr) put_part<past, count>(v, row.sum + i, j, n);
      put_part<past, count>(f(parts, v, i, j, n), y + i, j, n);
    }
  });
}

void RmsRows(const RmsNorm& o, std::int64_t begin, std::int64_t end, bool streams) {
  with_type(o.x.dtype, streams, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const float* const gain = o.gain.data();
    for (std::int64_t r = begin; r < end; ++r) {
      NormRow<T> row(o, r);
      const float squares = summed_row<Statistic::squares, past>(row, cols);
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(cols) + norm_epsilon);
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      put_row<past>(row, row_of<T>(o.y, r), cols,
                    [&]<int count>(Count<count>, VF v, std::int64_t i, int j, std::int64_t n)
                        HWY_ATTR {
                          return hn::Mul(hn::Mul(v, set(rstd)), load_part<count>(gain + i, j, n));
                        });
    }
    if constexpr (past) hwy::FlushStream();
  });
}

template <int count, class T>
HWY_INLINE void rms_backward_part(const T* s, const T* dy, const float* gain, float* dgain,
                                  float rstd, std::int64_t n, VF* dots) {
  for (int j = 0; j < count; ++j) {
    const VF normal = hn::Mul(load_part<count>(s, j, n), set(rstd));
    const VF product = hn::Mul(load_part<count>(dy, j, n), normal);
    store_part<count>(hn::Add(load_part<count>(dgain, j, n), product), dgain, j, n);
    dots[j] = hn::MulAdd(product, load_part<count>(gain, j, n), dots[j]);
  }
}

// dgain[0, cols) is of this block of rows alone.
void RmsBackwardRows(const RmsNormBackward& o, std::int64_t begin, std::int64_t end, float* dgain) {
  with_type(o.s.dtype, [&]<class T>(T) HWY_ATTR {
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
        for (int j = 0; j < count; ++j) {
          const VF normal = hn::Mul(load_part<count>(s + i, j, n), set(rstd));
          const VF scaled =
              hn::Mul(load_part<count>(dy + i, j, n), load_part<count>(gain + i, j, n));
          const VF change = hn::Mul(hn::NegMulAdd(normal, set(mean), scaled), set(rstd));
          store_part<count>(hn::Add(load_part<count>(dx + i, j, n), change), dx + i, j, n);
        }
      });
    }
  });
}

void LayerRows(const LayerNorm& o, std::int64_t begin, std::int64_t end, bool streams) {
  with_type(o.x.dtype, streams, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const auto elements = static_cast<float>(cols);
    const float* const gain = o.gain.data();
    const float* const bias = o.bias.data();
    for (std::int64_t r = begin; r < end; ++r) {
      NormRow<T> row(o, r);
      const float mean = summed_row<Statistic::sum, past>(row, cols) / elements;
      VF squares[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        for (int j = 0; j < count; ++j) {
          VF v = hn::Sub(row.template part<count>(i, j, n), set(mean));
          if (count == 1 && n < lanes)
            v = hn::IfThenElseZero(hn::FirstN(F32(), static_cast<std::size_t>(n)), v);
          squares[j] = hn::MulAdd(v, v, squares[j]);
        }
      });
      const float rstd = 1.0f / std::sqrt(sum_of_parts(squares) / elements + norm_epsilon);
      o.mean[static_cast<std::size_t>(r)] = mean;
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      put_row<past>(
          row, row_of<T>(o.y, r), cols,
          [&]<int count>(Count<count>, VF v, std::int64_t i, int j, std::int64_t n) HWY_ATTR {
            return hn::MulAdd(hn::Mul(hn::Sub(v, set(mean)), set(rstd)),
                              load_part<count>(gain + i, j, n), load_part<count>(bias + i, j, n));
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
// Adds to dgain and dbias; sums of dy · gain, and of it times the normal.
template <int count, class T>
HWY_INLINE void layer_backward_part(const T* s, const T* dy, const LayerBackwardRow& row,
                                    std::int64_t i, std::int64_t n, VF* sums, VF* dots) {
  for (int j = 0; j < count; ++j) {
    const VF centred = hn::Sub(load_part<count>(s + i, j, n), set(row.mean));
    const VF normal = hn::Mul(centred, set(row.rstd));
    const VF g = load_part<count>(dy + i, j, n);  // zero past the end, and so are the products
    float* const dgain = row.dgain + i;
    float* const dbias = row.dbias + i;
    store_part<count>(hn::MulAdd(g, normal, load_part<count>(dgain, j, n)), dgain, j, n);
    store_part<count>(hn::Add(load_part<count>(dbias, j, n), g), dbias, j, n);
    const VF scaled = hn::Mul(g, load_part<count>(row.gain + i, j, n));
    sums[j] = hn::Add(sums[j], scaled);
    dots[j] = hn::MulAdd(scaled, normal, dots[j]);
  }
}

// dgain and dbias [0, cols) are of this block of rows alone.
void LayerBackwardRows(const LayerNormBackward& o, std::int64_t begin, std::int64_t end,
                       float* dgain, float* dbias, bool streams) {
  with_type(o.s.dtype, streams, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
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
        for (int j = 0; j < count; ++j) {
          const VF normal = hn::Mul(hn::Sub(load_part<count>(s + i, j, n), set(mean)), set(rstd));
          const VF scaled =
              hn::Mul(load_part<count>(dy + i, j, n), load_part<count>(gain + i, j, n));
          const VF centred = hn::Sub(scaled, set(mean_of_scaled));
          const VF change = hn::NegMulAdd(normal, set(mean_of_products), centred);
          put_part<past, count>(hn::Mul(change, set(rstd)), dx + i, j, n);
        }
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

constexpr std::int64_t norm_rows = 16;   // of a task
constexpr std::int64_t block_rows = 64;  // whose parameter gradients are summed first

template <class Args>
bool norm_streams(const Args& o) {
  return goes_past_caches(o.y) && (o.sum.data == nullptr || goes_past_caches(o.sum));
}

std::size_t norm_table(const ContextState& state) {
  return quant::cpu::table_index(state.features);
}

// to[c] (+)= the sums of blocks of rows, in order.
void add_blocks(ContextState& state, const float* sums, std::int64_t blocks, std::int64_t stride,
                std::span<float> to, bool accumulate) {
  constexpr std::int64_t columns = 256;
  state.threads.for_ranges(static_cast<std::int64_t>(to.size()), columns,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             float sum[columns] = {};
                             for (std::int64_t b = 0; b < blocks; ++b)
                               for (std::int64_t c = begin; c < end; ++c)
                                 sum[c - begin] += sums[b * stride + c];
                             for (std::int64_t c = begin; c < end; ++c) {
                               float& total = to[static_cast<std::size_t>(c)];
                               total = accumulate ? total + sum[c - begin] : sum[c - begin];
                             }
                           });
}

}  // namespace

namespace cpu {

void rms_norm(ContextState& state, const RmsNorm& o) {
  SWITCHBACK_ASSERT((o.add.data == nullptr) == (o.sum.data == nullptr));
  const auto kernel = HWY_DISPATCH_TABLE(RmsRows)[norm_table(state)];
  const bool streams = norm_streams(o);
  state.threads.for_ranges(o.x.rows, norm_rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, streams);
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
  const bool streams = norm_streams(o);
  state.threads.for_ranges(o.x.rows, norm_rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, streams);
  });
}

void layer_norm_backward(ContextState& state, const LayerNormBackward& o) {
  const auto kernel = HWY_DISPATCH_TABLE(LayerBackwardRows)[norm_table(state)];
  const std::int64_t cols = o.s.cols;
  const std::int64_t blocks = (o.s.rows + block_rows - 1) / block_rows;
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(2 * blocks * cols);
  // In place the lines are in the cache.
  const bool streams = goes_past_caches(o.dx) && o.dx.data != o.dy.data && o.dx.data != o.s.data;
  state.threads.for_ranges(o.s.rows, block_rows, [&](std::int64_t begin, std::int64_t end, int) {
    float* const block = sums + begin / block_rows * 2 * cols;
    kernel(o, begin, end, block, block + cols, streams);
  });
  add_blocks(state, sums, blocks, 2 * cols, o.dgain, o.accumulate);
  add_blocks(state, sums + cols, blocks, 2 * cols, o.dbias, o.accumulate);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
