// SPDX-License-Identifier: Apache-2.0
// Engine zone: quantization with stochastic rounding: of rows, and of columns of blocks.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/stochastic.cpp"
#include "hwy/foreach_target.h"
//
#include "core/per_worker.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/philox-inl.h"
#include "quant/cpu/rows-inl.h"
#include "quant/stochastic.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The number of columns for which one vector of Philox counters gives random bits.
inline constexpr std::int64_t drawn_columns = columns_of_counter * lanes;

// Draws the random bits of drawn_columns columns from column `col` on, a multiple of 8, in the
// order of the columns. Lower bound: 10 rounds of 16 operations for each vector of counters (a lane
// serves 8 elements), about 25 operations for each vector of elements.
HWY_INLINE void draw(const StochasticRounding& s, std::int64_t row, std::int64_t col,
                     std::uint16_t* bits) {
  const U32 d;
  VU c[1][4] = {
      {hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(col / columns_of_counter))),
       hn::Set(d, static_cast<std::uint32_t>(s.row0 + row)), hn::Set(d, s.stream),
       hn::Set(d, s.step)}};
  philox_words<1>(s.seed, c);
  alignas(64) std::uint32_t words[4][lanes];
  hn::Store(c[0][0], d, words[0]);
  hn::Store(c[0][1], d, words[1]);
  hn::Store(c[0][2], d, words[2]);
  hn::Store(c[0][3], d, words[3]);
  for (std::int64_t i = 0; i < lanes; ++i)
    for (std::int64_t w = 0; w < 4; ++w) {
      bits[i * columns_of_counter + 2 * w] = static_cast<std::uint16_t>(words[w][i]);
      bits[i * columns_of_counter + 2 * w + 1] = static_cast<std::uint16_t>(words[w][i] >> 16);
    }
}

// The absmax of drawn_columns elements: one for all (AbsmaxOfRow), or one for each
// (AbsmaxOfColumns), which is 0 if codes are 0.
struct AbsmaxOfRow {
  VF absmax;
  HWY_INLINE VF divided(VF x, std::int64_t) const { return hn::Div(x, absmax); }
};
struct AbsmaxOfColumns {
  const float* absmax;
  HWY_INLINE VF divided(VF x, std::int64_t i) const {
    const VF divisor = hn::LoadU(F32(), absmax + i);
    return hn::IfThenElseZero(hn::Ne(divisor, hn::Zero(F32())), hn::Div(x, divisor));
  }
};

// Computes the codes of drawn_columns elements, rounded stochastically by the random `bits`.
template <class T, class Absmax>
HWY_INLINE void stochastic_codes(const T* x, const Absmax& absmax, const std::uint16_t* bits,
                                 std::int8_t* q) {
  const I32 di;
  for (std::int64_t i = 0; i < drawn_columns; i += lanes) {
    const VF v = hn::Mul(hn::Set(F32(), 127.0f), absmax.divided(widen(x + i), i));
    const auto whole = hn::NearestInt(hn::Mul(hn::Set(F32(), 65536.0f), v));
    const auto r = hn::BitCast(di, hn::PromoteTo(U32(), hn::LoadU(U16(), bits + i)));
    store_bytes(
        hn::And(hn::BitCast(U32(), hn::ShiftRight<16>(hn::Add(whole, r))), hn::Set(U32(), 0xFFu)),
        q + i);
  }
}

template <class T>
void stochastic_row(const T* x, std::int64_t cols, const StochasticRounding& rounding,
                    std::int64_t row_number, float absmax, std::int8_t* q) {
  if (!has_codes(absmax)) {
    std::memset(q, 0, static_cast<std::size_t>(cols));
    return;
  }
  const AbsmaxOfRow divisor = {hn::Set(F32(), absmax)};
  alignas(64) std::uint16_t bits[drawn_columns];
  for (std::int64_t c = 0; c < cols; c += drawn_columns) {
    draw(rounding, row_number, c, bits);
    const std::int64_t count = std::min(drawn_columns, cols - c);
    if (count == drawn_columns) {
      stochastic_codes(x + c, divisor, bits, q + c);
      continue;
    }
    alignas(64) T some[drawn_columns];
    std::memset(static_cast<void*>(some), 0, sizeof(some));
    std::memcpy(static_cast<void*>(some), static_cast<const void*>(x + c),
                static_cast<std::size_t>(count) * sizeof(T));
    alignas(64) std::int8_t codes[drawn_columns];
    stochastic_codes(some, divisor, bits, codes);
    std::memcpy(q + c, codes, static_cast<std::size_t>(count));
  }
}

// Computes the codes of rows of x · column_scales; the product is stored in `scratch`.
template <class T>
void stochastic_scaled_rows(const Request& o, std::int64_t begin, std::int64_t end,
                            float* scratch) {
  for (std::int64_t r = begin; r < end; ++r) {
    RunningMax<float> max;
    scale_run(row<T>(o.x, r), o.x.cols, o.column_scales.data(), scratch, max);
    const float absmax = absmax_from_bits(max.result());
    core::store(o.q.absmax.data(), r, absmax);
    stochastic_row(static_cast<const float*>(scratch), o.x.cols, *o.stochastic, r, absmax,
                   row(o.q.codes, r));
  }
}

void StochasticRows(const Request& o, std::int64_t begin, std::int64_t end, float* scratch) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    if (!o.column_scales.empty()) return stochastic_scaled_rows<T>(o, begin, end, scratch);
    for (std::int64_t r = begin; r < end; ++r) {
      const T* const x = row<T>(o.x, r);
      RunningMax<T> max;
      add_run(max, x, o.x.cols);
      const float absmax = absmax_from_bits(max.result());
      core::store(o.q.absmax.data(), r, absmax);
      stochastic_row(x, o.x.cols, *o.stochastic, r, absmax, row(o.q.codes, r));
    }
  });
}

// Computes the codes of `count` columns, at most drawn_columns, from column c on. A few rows are
// quantized at a time, so that the bytes of a column are stored next to each other.
template <class T>
HWY_INLINE void stochastic_columns(const cpu::StochasticColumns& o, const StochasticRounding& s,
                                   std::int64_t c, std::int64_t count, const float* divisor) {
  constexpr std::int64_t together = 16;
  const AbsmaxOfColumns absmax = {divisor};
  alignas(64) std::uint16_t bits[drawn_columns];
  alignas(64) std::int8_t codes[together][drawn_columns];
  alignas(64) T some[drawn_columns] = {};
  for (std::int64_t first = 0; first < o.x.rows; first += together) {
    const std::int64_t rows = std::min(together, o.x.rows - first);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* x = row<T>(o.x, first + r, c);
      if (count < drawn_columns) {
        std::memcpy(static_cast<void*>(some), static_cast<const void*>(x),
                    static_cast<std::size_t>(count) * sizeof(T));
        x = some;
      }
      draw(s, o.row + first + r, o.col + c, bits);
      stochastic_codes(x, absmax, bits, codes[r]);
    }
    for (std::int64_t j = 0; j < count; ++j) {
      std::int8_t* const to = row(o.q_t, c + j, first);
      for (std::int64_t r = 0; r < rows; ++r)
        to[r] = codes[r][j];
    }
  }
}

void StochasticColumnCodes(const cpu::StochasticColumns& o, const StochasticRounding& rounding) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    std::int64_t c = 0;
    for (; c + drawn_columns <= o.x.cols; c += drawn_columns)
      stochastic_columns<T>(o, rounding, c, drawn_columns, o.divisor + c);
    if (c == o.x.cols) return;
    alignas(64) float divisor[drawn_columns] = {};
    std::copy(o.divisor + c, o.divisor + o.x.cols, divisor);
    stochastic_columns<T>(o, rounding, c, o.x.cols - c, divisor);
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(StochasticRows);
HWY_EXPORT(StochasticColumnCodes);

namespace cpu {

StochasticColumnsKernel stochastic_columns_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(StochasticColumnCodes)[table_index(features)];
}

void rowwise_stochastic(ContextState& state, const Config& config, const Request& o) {
  const auto kernel = HWY_DISPATCH_TABLE(StochasticRows)[table_index(state.features)];
  const std::int64_t elements = task_elements(state, config, o.x.rows, o.x.cols);
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(frame, state.threads.count(),
                                       o.column_scales.empty() ? 0 : scaled_row_scratch(o.x.cols));
  state.threads.for_ranges(o.x.rows, std::max<std::int64_t>(1, elements / o.x.cols),
                           [&](std::int64_t begin, std::int64_t end, int worker) {
                             kernel(o, begin, end, scratch.of(worker));
                           });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
