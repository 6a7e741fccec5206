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
#include "models/cpu/vectors-inl.h"

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

// s = x (+ add), rounded to T as it is stored: the statistics are those of what backward reads.
template <Statistic statistic, int count, class T>
HWY_INLINE void summed_part(const T* x, const T* add, T* s, std::int64_t n, VF* sums) {
  for (int j = 0; j < count; ++j) {
    VF v = load_part<count>(x, j, n);
    if (add != nullptr) {
      store_part<count>(hn::Add(v, load_part<count>(add, j, n)), s, j, n);
      v = load_part<count>(s, j, n);
    }
    sums[j] = statistic == Statistic::squares ? hn::MulAdd(v, v, sums[j]) : hn::Add(sums[j], v);
  }
}

// The sum of s or of s² over a row. `s` is the row to read on from.
template <Statistic statistic, class T, class Args>
HWY_INLINE float summed_row(const Args& o, std::int64_t r, const T*& s) {
  const std::int64_t cols = o.x.cols;
  const T* const x = row_of<T>(o.x, r);
  const T* const add = o.add.data == nullptr ? nullptr : row_of<T>(o.add, r);
  T* const sum = add == nullptr ? nullptr : row_of<T>(o.sum, r);
  VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  const auto at = [](auto* p, std::int64_t i) { return p == nullptr ? nullptr : p + i; };
  std::int64_t i = 0;
  for (; i + together * lanes <= cols; i += together * lanes) {
    ask_ahead<together>(x + i);
    if (add != nullptr) ask_ahead<together>(add + i);
    if (add != nullptr) ask_ahead<together>(sum + i);
    summed_part<statistic, together>(x + i, at(add, i), at(sum, i), 0, sums);
  }
  for (; i < cols; i += lanes)
    summed_part<statistic, 1>(x + i, at(add, i), at(sum, i), cols - i, sums);
  s = add == nullptr ? x : sum;
  return sum_of_parts(sums);
}

void RmsRows(const RmsNorm& o, std::int64_t begin, std::int64_t end) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    for (std::int64_t r = begin; r < end; ++r) {
      const T* s = nullptr;
      const float squares = summed_row<Statistic::squares, T>(o, r, s);
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(cols) + norm_epsilon);
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      T* const y = row_of<T>(o.y, r);
      const float* const gain = o.gain.data();
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(y + i);
        for (int j = 0; j < count; ++j) {
          const VF scaled = hn::Mul(load_part<count>(s + i, j, n), set(rstd));
          store_part<count>(hn::Mul(scaled, load_part<count>(gain + i, j, n)), y + i, j, n);
        }
      });
    }
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
    std::fill(dgain, dgain + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const s = row_of<T>(o.s, r);
      const T* const dy = row_of<T>(o.dy, r);
      T* const dx = row_of<T>(o.dx, r);
      const float rstd = o.rstd[static_cast<std::size_t>(r)];
      const float* const gain = o.gain.data();
      VF dots[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(s + i);
        ask_ahead<count>(dy + i);
        rms_backward_part<count>(s + i, dy + i, gain + i, dgain + i, rstd, n, dots);
      });
      const float mean = sum_of_parts(dots) / static_cast<float>(cols);
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(dx + i);
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

void LayerRows(const LayerNorm& o, std::int64_t begin, std::int64_t end) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = o.x.cols;
    const auto count = static_cast<float>(cols);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* s = nullptr;
      const float mean = summed_row<Statistic::sum, T>(o, r, s) / count;
      VF squares[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      std::int64_t i = 0;
      for (; i + together * lanes <= cols; i += together * lanes)
        for (int j = 0; j < together; ++j) {
          const VF v = hn::Sub(q::widen(s + i + j * lanes), set(mean));
          squares[j] = hn::MulAdd(v, v, squares[j]);
        }
      for (; i + lanes <= cols; i += lanes) {
        const VF v = hn::Sub(q::widen(s + i), set(mean));
        squares[0] = hn::MulAdd(v, v, squares[0]);
      }
      float variance = sum_of_parts(squares);
      for (; i < cols; ++i) {
        const float v = static_cast<float>(s[i]) - mean;
        variance += v * v;
      }
      const float rstd = 1.0f / std::sqrt(variance / count + norm_epsilon);
      o.mean[static_cast<std::size_t>(r)] = mean;
      o.rstd[static_cast<std::size_t>(r)] = rstd;
      T* const y = row_of<T>(o.y, r);
      const float* const gain = o.gain.data();
      const float* const bias = o.bias.data();
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t at, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(y + at);
        for (int j = 0; j < count; ++j) {
          const VF centred = hn::Sub(load_part<count>(s + at, j, n), set(mean));
          const VF normal = hn::Mul(centred, set(rstd));
          const VF v = hn::MulAdd(normal, load_part<count>(gain + at, j, n),
                                  load_part<count>(bias + at, j, n));
          store_part<count>(v, y + at, j, n);
        }
      });
    }
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
      const LayerBackwardRow row = {o.gain.data(), dgain, dbias, mean, rstd};
      VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      VF dots[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(s + i);
        ask_ahead<count>(dy + i);
        layer_backward_part<count>(s, dy, row, i, n, sums, dots);
      });
      const float mean_of_scaled = sum_of_parts(sums) / count;
      const float mean_of_products = sum_of_parts(dots) / count;
      const float* const gain = o.gain.data();
      for_parts(cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
        ask_ahead<count>(dx + i);
        for (int j = 0; j < count; ++j) {
          const VF normal = hn::Mul(hn::Sub(load_part<count>(s + i, j, n), set(mean)), set(rstd));
          const VF scaled =
              hn::Mul(load_part<count>(dy + i, j, n), load_part<count>(gain + i, j, n));
          const VF centred = hn::Sub(scaled, set(mean_of_scaled));
          const VF change = hn::NegMulAdd(normal, set(mean_of_products), centred);
          store_part<count>(hn::Mul(change, set(rstd)), dx + i, j, n);
        }
      });
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

}  // namespace cpu

}  // namespace switchback::models
#endif
