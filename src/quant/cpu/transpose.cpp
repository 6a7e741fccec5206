// SPDX-License-Identifier: Apache-2.0
// Engine zone: codes stored transposed, a tile at a time.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/transpose.cpp"
#include "hwy/foreach_target.h"
//
#include "core/assert.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"
#include "quant/cpu/transpose.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using D8 = hn::Repartition<std::uint8_t, F32>;
inline constexpr std::int64_t vector_bytes = static_cast<std::int64_t>(hn::MaxLanes(D8()));
#endif

// One scale for each column.
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

// A tile of codes between its two halves of work lies in units of 64 rows by 16 columns. Within
// one, row 16·b + i is at i·64 + b·16: so 16 vectors that follow each other hold the same 16
// columns of rows i, 16 + i, …, and transposing every 128-bit block turns them into runs of rows.
inline constexpr std::int64_t unit_bytes = 1024;

// Where vector v of a quad goes, from where the quad's first byte goes.
constexpr std::int64_t unit_offset(std::int64_t v) {
  return v * lanes / 16 * unit_bytes + v * lanes % 16;
}

template <bool bracket, class T, class S>
HWY_INLINE void code_tile(const cpu::TileJob& job, const cpu::Cut::Piece& piece, const S& scale,
                          std::int8_t* units) {
  const std::int64_t cols = piece.col_end - piece.col_begin;
  const std::int64_t block_bytes = (cols + 63) / 64 * 64 * 64;  // 64 rows of units
  for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r) {
    const std::int64_t i = r - piece.row_begin;
    const T* const x = row<T>(job.x, r, piece.col_begin);
    std::int8_t* const out = units + i / 64 * block_bytes + i % 16 * 64 + i % 64 / 16 * 16;
    std::int8_t* const q = job.q.data == nullptr ? nullptr : row(job.q, r, piece.col_begin);
    const bool stream = job.stream && reinterpret_cast<std::uintptr_t>(q) % quad == 0;
    for (std::int64_t c = 0; c < cols; c += quad) {
      const bool whole = c + quad <= cols;
      const Codes k =
          whole ? codes<bracket>(x + c, scale, piece.col_begin + c)
                : codes<bracket>(Padded<T>(x + c, cols - c).elements, scale, piece.col_begin + c);
      std::int8_t* const unit = out + c / 16 * unit_bytes;
      store_bytes(k.a, unit);
      store_bytes(k.b, unit + unit_offset(1));
      store_bytes(k.c, unit + unit_offset(2));
      store_bytes(k.d, unit + unit_offset(3));
      if (q == nullptr) continue;
      if (whole && stream) {
        store_codes<true>(k, q + c);
      } else if (whole) {
        store_codes<false>(k, q + c);
      } else {
        alignas(64) std::int8_t padded[quad];
        store_codes<false>(k, padded);
        std::memcpy(q + c, padded, static_cast<std::size_t>(cols - c));
      }
    }
  }
}

// lines[col][row] of the 64 rows and 16 columns of a unit; lines are line_bytes apart. Interleaving
// the bytes of vectors i and i + 8 rotates the bits of (row, column) by one place; four times
// exchanges row and column.
HWY_INLINE void transpose_unit(const std::int8_t* unit, std::int8_t* lines,
                               std::int64_t line_bytes) {
#if HWY_TARGET == HWY_SCALAR  // the fallback that Highway always compiles: correct is enough
  for (std::int64_t r = 0; r < 64; ++r)
    for (std::int64_t c = 0; c < 16; ++c)
      lines[c * line_bytes + r] = unit[r % 16 * 64 + r / 16 * 16 + c];
#else
  const D8 d;
  for (std::int64_t part = 0; part < 64; part += vector_bytes) {
    hn::Vec<D8> v[16];
    hn::Vec<D8> w[16];
    for (std::int64_t i = 0; i < 16; ++i)
      v[i] = hn::Load(d, reinterpret_cast<const std::uint8_t*>(unit + i * 64 + part));
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 8; ++i) {
        w[2 * i] = hn::InterleaveLower(d, v[i], v[i + 8]);
        w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + 8]);
      }
      for (int i = 0; i < 8; ++i) {
        v[2 * i] = hn::InterleaveLower(d, w[i], w[i + 8]);
        v[2 * i + 1] = hn::InterleaveUpper(d, w[i], w[i + 8]);
      }
    }
    for (std::int64_t j = 0; j < 16; ++j)
      hn::Store(v[j], d, reinterpret_cast<std::uint8_t*>(lines + j * line_bytes + part));
  }
#endif
}

// Copies from an aligned buffer whose size is a multiple of 64.
HWY_INLINE void write_line(const std::int8_t* from, std::int64_t count, std::int8_t* to,
                           bool stream) {
  std::int64_t i = 0;
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(stream);
#else
  const D8 d;
  if (stream && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
    for (; i + 64 <= count; i += 64)
      for (std::int64_t part = i; part < i + 64; part += vector_bytes)
        hn::Stream(hn::Load(d, reinterpret_cast<const std::uint8_t*>(from + part)), d,
                   reinterpret_cast<std::uint8_t*>(to + part));
  } else {
    for (; i + vector_bytes <= count; i += vector_bytes)
      hn::StoreU(hn::Load(d, reinterpret_cast<const std::uint8_t*>(from + i)), d,
                 reinterpret_cast<std::uint8_t*>(to + i));
  }
#endif
  if (i < count) std::memcpy(to + i, from + i, static_cast<std::size_t>(count - i));
}

void TransposeTile(const cpu::TileJob& job, const cpu::Cut::Piece& piece, std::int8_t* scratch) {
  const std::int64_t rows = piece.row_end - piece.row_begin;
  const std::int64_t cols = piece.col_end - piece.col_begin;
  const std::int64_t line_bytes = (rows + 63) / 64 * 64;
  std::int8_t* const lines = scratch;
  std::int8_t* const units = scratch + 16 * line_bytes;
  with_type(job.x.dtype, [&]<class T>(T) HWY_ATTR {
    if (!job.by_column) {
      if (job.scale.method == Scale::Method::bracket)
        code_tile<true, T>(job, piece, OneScale(job.scale), units);
      else
        code_tile<false, T>(job, piece, OneScale(job.scale), units);
    } else if (job.columns.bracketed(piece.col_begin, piece.col_end)) {
      code_tile<true, T>(job, piece, ScaleOfColumn{job.columns}, units);
    } else {
      code_tile<false, T>(job, piece, ScaleOfColumn{job.columns}, units);
    }
  });
  const std::int64_t block_bytes = (cols + 63) / 64 * 64 * 64;
  for (std::int64_t c = 0; c < cols; c += 16) {
    for (std::int64_t r = 0; r < rows; r += 64)
      transpose_unit(units + r / 64 * block_bytes + c / 16 * unit_bytes, lines + r, line_bytes);
    for (std::int64_t j = 0; j < std::min<std::int64_t>(16, cols - c); ++j)
      write_line(lines + j * line_bytes, rows,
                 row(job.q_t, piece.col_begin + c + j, piece.row_begin), job.stream);
  }
  if (job.stream) hwy::FlushStream();
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(TransposeTile);

namespace cpu {
namespace {

std::int64_t rounded_up(std::int64_t n) {
  return (n + 63) / 64 * 64;
}

// All tiles of columns [begin, end), last rows first: a reduction over the same columns has just
// left those in the caches.
void turn_tiles(ContextState& state, const Config& config, const TileJob& job, std::int64_t begin,
                std::int64_t end, std::int8_t* scratch, std::int64_t scratch_bytes) {
  const auto kernel = HWY_DISPATCH_TABLE(TransposeTile)[table_index(state.features)];
  const std::int64_t across = (end - begin + config.tile_cols - 1) / config.tile_cols;
  const std::int64_t down = (job.x.rows + config.tile_rows - 1) / config.tile_rows;
  state.threads.for_each(down * across, [&](std::int64_t task, int worker) {
    const std::int64_t r = (down - 1 - task / across) * config.tile_rows;
    const std::int64_t c = begin + task % across * config.tile_cols;
    kernel(job,
           {r, std::min(r + config.tile_rows, job.x.rows), c, std::min(c + config.tile_cols, end)},
           scratch + worker * scratch_bytes);
  });
}

// The magnitudes of columns as every worker has seen them.
struct Magnitudes {
  std::byte* data = nullptr;
  std::int64_t worker_bytes = 0;
  int workers = 0;
  DType dtype = DType::f32;

  [[nodiscard]] void* of(int worker, std::int64_t col) const {
    return data + worker * worker_bytes + col * static_cast<std::int64_t>(dtype_size_bytes(dtype));
  }
  [[nodiscard]] float absmax(std::int64_t col) const {
    float largest = 0.0f;
    for (int worker = 0; worker < workers; ++worker)
      largest = larger_magnitude(largest, core::load_float(of(worker, col), dtype, 0));
    return largest;
  }
};

// absmax and scales of columns [begin, end).
void finish_columns(ContextState& state, const Magnitudes& magnitudes, std::int64_t begin,
                    std::int64_t end, float* absmax, const ColumnScales& scales) {
  state.threads.for_ranges(end - begin, 1024, [&](std::int64_t from, std::int64_t to, int) {
    for (std::int64_t group = begin + from; group < begin + to; group += 64) {
      bool bracketed = true;
      for (std::int64_t c = group; c < group + 64; ++c) {
        const Scale scale = c < begin + to ? Scale::of(magnitudes.absmax(c)) : Scale();
        if (c < begin + to) core::store(absmax, c, scale.absmax);
        scales.lower[c] = scale.lower;
        scales.upper[c] = scale.upper;
        scales.divisor[c] = scale.method == Scale::Method::none ? 0.0f : scale.absmax;
        bracketed = bracketed && scale.method == Scale::Method::bracket;
      }
      scales.group_bracketed[group / 64] = bracketed;
    }
  });
}

void reset(ContextState& state, const Magnitudes& magnitudes) {
  state.threads.for_each(magnitudes.workers, [&](std::int64_t worker, int) {
    std::memset(magnitudes.of(static_cast<int>(worker), 0), 0,
                static_cast<std::size_t>(magnitudes.worker_bytes));
  });
}

}  // namespace

void transpose(ContextState& state, const Problem& problem, const Config& config,
               const Operands& o) {
  SWITCHBACK_ASSERT(config.tile_rows > 0 && config.tile_rows % 64 == 0);
  SWITCHBACK_ASSERT(config.tile_cols > 0 && config.tile_cols % 64 == 0);
  SWITCHBACK_ASSERT(config.panel_cols % config.tile_cols == 0);
  const std::int64_t rows = o.x.rows;
  const std::int64_t cols = o.x.cols;
  const int workers = state.threads.count();
  const std::int64_t scratch_bytes = config.tile_rows * (config.tile_cols + 16);
  core::Workspace::Frame frame(state.workspace);
  auto* const scratch = frame.take<std::int8_t>(workers * scratch_bytes);
  TileJob job;
  job.x = o.x;
  job.q_t = o.q_t;
  job.stream = config.stream;

  if (problem.op == Op::global_transpose || problem.op == Op::global_and_transpose) {
    job.q = o.q;
    job.scale = global_scale(state, config, o.x);
    core::store(o.absmax, 0, job.scale.absmax);
    if (job.scale.method == Scale::Method::none) {
      fill_zero(state, o.q);
      return fill_zero(state, o.q_t);
    }
    return turn_tiles(state, config, job, 0, cols, scratch, scratch_bytes);
  }

  job.by_column = true;
  const std::int64_t padded = rounded_up(cols);
  job.columns = {frame.take<float>(padded), frame.take<float>(padded), frame.take<float>(padded),
                 frame.take<bool>(padded / 64)};
  Magnitudes magnitudes;
  magnitudes.workers = workers;
  magnitudes.dtype = o.x.dtype;
  magnitudes.worker_bytes = padded * static_cast<std::int64_t>(dtype_size_bytes(o.x.dtype));
  magnitudes.data = frame.take<std::byte>(workers * magnitudes.worker_bytes);
  reset(state, magnitudes);
  const auto raise = raise_kernel(state.features);

  if (problem.op == Op::rowwise_and_columnwise_transpose) {
    const auto quantize = rowwise_kernel(state.features);
    constexpr std::int64_t rows_in_cache = 8;
    state.threads.for_ranges(rows, rows_in_cache,
                             [&](std::int64_t begin, std::int64_t end, int worker) {
                               quantize(o, begin, end, config.stream);
                               raise(o.x, {begin, end, 0, cols}, magnitudes.of(worker, 0));
                             });
    finish_columns(state, magnitudes, 0, cols, o.absmax_cols, job.columns);
    return turn_tiles(state, config, job, 0, cols, scratch, scratch_bytes);
  }

  const std::int64_t panel = config.panel_cols == 0 ? cols : config.panel_cols;
  for (std::int64_t begin = 0; begin < cols; begin += panel) {
    const std::int64_t end = std::min(begin + panel, cols);
    // Magnitudes of this many columns stay in the first-level cache.
    constexpr std::int64_t columns = 2048;
    const std::int64_t across = (end - begin + columns - 1) / columns;
    const std::int64_t piece_rows = std::clamp<std::int64_t>(
        task_elements(state, config, rows, end - begin) / std::min(columns, end - begin), 8, 1024);
    const std::int64_t down = (rows + piece_rows - 1) / piece_rows;
    state.threads.for_each(down * across, [&](std::int64_t task, int worker) {
      const std::int64_t r = task / across * piece_rows;
      const std::int64_t c = begin + task % across * columns;
      raise(o.x, {r, std::min(r + piece_rows, rows), c, std::min(c + columns, end)},
            magnitudes.of(worker, c));
    });
    finish_columns(state, magnitudes, begin, end, o.absmax_cols, job.columns);
    turn_tiles(state, config, job, begin, end, scratch, scratch_bytes);
  }
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
