// SPDX-License-Identifier: Apache-2.0
// Engine zone: quantization whose codes are stored transposed, a tile of the matrix at a time.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/transpose.cpp"
#include "hwy/foreach_target.h"
//
#include "core/assert.hpp"
#include "core/per_worker.hpp"
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

// A tile is processed in two halves. First its rows are read from end to end and their codes packed
// into a buffer that stays in the second-level cache. Then those codes are transposed, a unit of 16
// columns at a time, and written in whole cache lines. Alternating halves disturb each other's
// memory traffic less than halves that are interleaved row by row.
inline constexpr std::int64_t turned_rows = 64;
inline constexpr std::int64_t line = 64;  // bytes of a cache line

// Units of 16 columns form groups that hold whole quads (four vectors of elements).
inline constexpr std::int64_t unit_group = std::max<std::int64_t>(16, quad);

// Returns the column of the tile whose codes are byte j of a unit, which is 16 bytes of each row of
// packed codes. Where packs work within blocks of 128 bits, a block of a packed quad holds 4 codes
// of each of its 4 vectors. With 8 lanes, columns 0 to 31 of a row are in memory as
//
//              byte 0-3   byte 4-7   byte 8-11  byte 12-15
//   vector     a          b          c          d
//   unit 0      0- 3       8-11      16-19      24-27
//   unit 1      4- 7      12-15      20-23      28-31
//
// so unit 0 has its columns in steps of `lanes`. They need not be put in order: a unit's columns
// become rows of q_t, and each of those is written to its place anyway.
HWY_INLINE std::int64_t unit_column(std::int64_t unit, std::int64_t j) {
  const std::int64_t first = unit * 16;
  if constexpr (!packed_in_order)
    return first / quad * quad + first % quad / 4 + j / 4 * lanes + j % 4;
  return first + j;
}

// Prefetches a cache line of the next tile into the second-level cache, which has room for both
// tiles. Half of the lines are prefetched while this tile is quantized, and half while it is
// transposed, so that memory is always busy.
template <class T>
HWY_INLINE void ask_soon(const T* p) {
  __builtin_prefetch(p, 0, 2);
}

// What to prefetch while a row is quantized: the next tile, or else rows of this tile, which may be
// too far apart for the hardware prefetcher.
template <class T>
struct Soon {
  const T* row;  // the row to prefetch next
  bool of_next;  // whether `row` belongs to the next tile
  HWY_INLINE void ask(std::int64_t c) const {
    constexpr std::int64_t step = line / static_cast<std::int64_t>(sizeof(T));
    if (of_next) {
      for (std::int64_t i = 0; i < quad / 2; i += step)
        ask_soon(row + c / 2 + i);
    } else {
      for (std::int64_t i = 0; i < quad; i += step)
        hwy::Prefetch(row + c + i);
    }
  }
};

// Computes the codes of a row of the tile. Stores them packed, and with_q also in order in q.
template <Made made, bool with_q, class T, class S>
HWY_INLINE void code_row(const T* x, const Soon<T>& soon, std::int64_t cols, const S& scale,
                         std::int64_t first_col, std::int8_t* packed, std::int8_t* q, bool stream) {
  std::int64_t c = 0;
  for (; c + quad <= cols; c += quad) {
    soon.ask(c);
    const Codes k = codes<made>(x + c, scale, first_col + c);
    store_packed(k, packed + c);
    if constexpr (with_q) {
      if (stream)
        store_codes<true>(k, q + c);
      else
        store_codes<false>(k, q + c);
    }
  }
  if (c == cols) return;
  const Codes k = codes<made>(Padded<T>(x + c, cols - c).elements, scale, first_col + c);
  store_packed(k, packed + c);
  if constexpr (with_q) {
    alignas(64) std::int8_t padded[quad];
    store_codes<false>(k, padded);
    std::memcpy(q + c, padded, static_cast<std::size_t>(cols - c));
  }
}

// Computes the codes of row r of the tile. Meanwhile prefetches `next`, a row of the next tile;
// null: there is none.
template <Made made, class T, class S>
HWY_INLINE void code_row(const cpu::TileJob& job, std::int64_t r, std::int64_t col_begin,
                         std::int64_t col_end, const T* next, const S& scale, std::int8_t* packed) {
  // Prefetch distance: enough at 1 KiB a row, not too far at 16 KiB.
  constexpr std::int64_t ahead = 8;
  const T* const x = row<T>(job.x, r, col_begin);
  const Soon<T> soon = {
      next != nullptr ? next : row<T>(job.x, std::min(r + ahead, job.x.rows - 1), col_begin),
      next != nullptr};
  const std::int64_t cols = col_end - col_begin;
  if (job.q.data == nullptr)
    return code_row<made, false>(x, soon, cols, scale, col_begin, packed, nullptr, false);
  std::int8_t* const q = row(job.q, r, col_begin);
  const bool stream = job.stream && reinterpret_cast<std::uintptr_t>(q) % quad == 0;
  code_row<made, true>(x, soon, cols, scale, col_begin, packed, q, stream);
}

// Prefetches the other half of the next tile's cache lines, while this tile is transposed.
struct LinesOfNext {
  const char* at = nullptr;    // the row to prefetch; null: there is none
  std::int64_t row_bytes = 0;  // bytes from row to row
  std::int64_t lines = 0;      // cache lines of a row
  std::int64_t done = 0;       // lines of this row
  HWY_INLINE void ask(std::int64_t count) {
    if (at == nullptr || lines == 0) return;
    for (; count > 0; --count) {
      ask_soon(at + done * line);
      if (++done < lines) continue;
      done = 0;
      at += row_bytes;
    }
  }
};

#if HWY_TARGET != HWY_SCALAR
// Loads 16 bytes of each of the rows r, r + 16, … of packed codes that fit into a vector. `from` is
// row r; rows are `stride` apart.
HWY_INLINE hn::Vec<D8> load_blocks(const std::int8_t* from, std::int64_t stride) {
  const auto* const p = reinterpret_cast<const std::uint8_t*>(from);
#if HWY_TARGET == HWY_AVX3
  const auto block = [&](std::int64_t i) HWY_ATTR {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(p + 16 * i * stride));
  };
  __m512i v = _mm512_castsi128_si512(block(0));
  v = _mm512_mask_broadcast_i32x4(v, 0x00F0, block(1));
  v = _mm512_mask_broadcast_i32x4(v, 0x0F00, block(2));
  return hn::Vec<D8>{_mm512_mask_broadcast_i32x4(v, 0xF000, block(3))};
#elif HWY_TARGET == HWY_AVX2
  const __m128i low = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_load_si128(reinterpret_cast<const __m128i*>(p + 16 * stride));
  return hn::Vec<D8>{_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1)};
#else
  alignas(64) std::uint8_t blocks[vector_bytes];
  for (std::int64_t i = 0; i < vector_bytes / 16; ++i)
    std::memcpy(blocks + 16 * i, p + 16 * i * stride, 16);
  return hn::Load(D8(), blocks);
#endif
}
#endif

// Transposes 16 bytes of 64 rows, `stride` apart, into 16 runs of 64 rows, and passes them to
// put(j, part, vector), a vector at a time. A step interleaves the bytes of vectors i and i + 8
// into vectors 2 · i and 2 · i + 1. With the bits of a byte's row (its vector) and column (its
// place in the vector):
//
//              vector        place
//   before     r3 r2 r1 r0   c3 c2 c1 c0
//   1 step     r2 r1 r0 c3   c2 c1 c0 r3      vector 2 · i + (upper half), place 2 · c + (i + 8)
//   2 steps    r1 r0 c3 c2   c1 c0 r3 r2
//   4 steps    c3 c2 c1 c0   r3 r2 r1 r0      row and column have changed places
#if HWY_TARGET == HWY_SCALAR  // Highway always compiles this fallback: correct is enough
HWY_INLINE void turn(const std::int8_t* from, std::int64_t stride, std::int8_t* lines,
                     std::int64_t line_bytes) {
  for (std::int64_t r = 0; r < turned_rows; ++r)
    for (std::int64_t j = 0; j < 16; ++j)
      lines[j * line_bytes + r] = from[r * stride + j];
}
#else
template <class Put>
HWY_INLINE void turn(const std::int8_t* from, std::int64_t stride, const Put& put) {
  const D8 d;
  HWY_UNROLL(1)
  for (std::int64_t part = 0; part < turned_rows; part += vector_bytes) {
    hn::Vec<D8> v[16];
    hn::Vec<D8> w[16];
    for (std::int64_t i = 0; i < 16; ++i)
      v[i] = load_blocks(from + (part + i) * stride, stride);
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
      put(j, part, v[j]);
  }
}
HWY_INLINE void turn(const std::int8_t* from, std::int64_t stride, std::int8_t* lines,
                     std::int64_t line_bytes) {
  turn(from, stride, [&](std::int64_t j, std::int64_t part, hn::Vec<D8> v) HWY_ATTR {
    hn::Store(v, D8(), reinterpret_cast<std::uint8_t*>(lines + j * line_bytes + part));
  });
}
#endif

// Copies whole cache lines; stream needs `to` aligned to them.
template <bool stream>
HWY_INLINE void put_lines(const std::int8_t* from, std::int64_t count, std::int8_t* to) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, static_cast<std::size_t>(count));
#else
  const D8 d;
  for (std::int64_t i = 0; i < count; i += vector_bytes) {
    const auto v = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(from + i));
    if constexpr (stream)
      hn::Stream(v, d, reinterpret_cast<std::uint8_t*>(to + i));
    else
      hn::StoreU(v, d, reinterpret_cast<std::uint8_t*>(to + i));
  }
#endif
}

HWY_INLINE void put_part(const std::int8_t* from, std::int64_t count, std::int8_t* to) {
  if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count));
}

// The state of the transposition of a tile, which is the second half of the work on it.
struct Turning {
  MatrixView<std::int8_t> to;  // q_t of all tiles of a run of tiles: [columns, rows]
  std::int64_t packed_bytes;   // bytes of a row of packed codes
  std::int8_t* lines;  // transposed codes of 2 units; each column begins with the carried line
  std::int64_t lines_bytes;  // bytes of a column in `lines`
  std::int8_t* carried;      // the last 64 codes of the previous tile, for each column
  bool carries;  // whether cache lines straddle tiles and are to be stored past the caches
  bool stream;
  std::int64_t next_lines;  // lines of the next tile to prefetch for each 16 columns of 64 rows
};

// Writes a column's codes of the rows [first, first + count) of a run of tiles.
HWY_INLINE void put_column(const Turning& t, const std::int8_t* from, std::int64_t first,
                           std::int64_t count, std::int8_t* to) {
  const std::int64_t whole = count / line * line;
  if (t.stream)
    put_lines<true>(from, whole, to + first);
  else
    put_lines<false>(from, whole, to + first);
  put_part(from + whole, count - whole, to + first + whole);
}

// Writes what put_column() writes, where cache lines of q_t begin at any row. A line that ends in
// the next tile is carried over, and that tile writes it.
HWY_INLINE void put_carrying(const Turning& t, const std::int8_t* from, std::int64_t first,
                             std::int64_t count, std::int8_t* to, std::int8_t* carried) {
  const auto lead = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % line);
  const std::int64_t end = first + count;
  std::int64_t done = lead == 0 ? first : first - line + lead;
  if (first == 0) {
    done = std::min(lead, count);
    put_part(from, done, to);
  }
  const std::int64_t whole = (end - done) / line * line;
  put_lines<true>(from + done - first, whole, to + done);
  done += whole;
  if (end == t.to.cols)
    put_part(from + done - first, end - done, to + done);
  else
    put_lines<false>(from + count - line, line, carried);
}

// Writes the transposed codes of a unit: 16 bytes of the packed rows [first, first + count) of a
// run of tiles.
HWY_INLINE void put_unit(const Turning& t, const std::int8_t* lines, std::int64_t unit,
                         std::int64_t first, std::int64_t count) {
  std::int8_t* const carried = t.carried + unit * 16 * line;
  for (std::int64_t j = 0; j < 16; ++j) {
    const std::int64_t col = unit_column(unit, j);
    if (col >= t.to.rows) continue;
    std::int8_t* const to = t.to.data + col * t.to.stride;
    const std::int8_t* const codes = lines + j * t.lines_bytes + line;
    if (t.carries)
      put_carrying(t, codes, first, count, to, carried + j * line);
    else
      put_column(t, codes, first, count, to);
  }
}

HWY_INLINE void turn_unit(const Turning& t, const std::int8_t* packed, std::int64_t unit,
                          std::int64_t first, std::int64_t count, LinesOfNext& next,
                          std::int8_t* lines) {
  if (t.carries && first > 0)
    for (std::int64_t j = 0; j < 16; ++j)
      put_lines<false>(t.carried + (unit * 16 + j) * line, line, lines + j * t.lines_bytes);
  for (std::int64_t r = 0; r < count; r += turned_rows) {
    next.ask(t.next_lines);
    turn(packed + unit * 16 + r * t.packed_bytes, t.packed_bytes, lines + line + r, t.lines_bytes);
  }
  if (t.carries && (first == 0 || first + count == t.to.cols))
    for (std::int64_t j = 0; j < 16; ++j) {
      const std::int64_t col = std::min(unit_column(unit, j), t.to.rows - 1);
      hwy::Prefetch(t.to.data + col * t.to.stride + (first == 0 ? 0 : first + count - 1));
    }
}

// Transposes a unit straight to its place in q_t, if that needs only whole vectors.
HWY_INLINE bool turn_in_place(const Turning& t, const std::int8_t* packed, std::int64_t unit,
                              std::int64_t first, std::int64_t count, LinesOfNext& next) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(t);
  static_cast<void>(packed);
  static_cast<void>(unit + first + count);
  static_cast<void>(next);
  return false;
#else
  if (t.carries || unit_column(unit, 15) >= t.to.rows || count % turned_rows != 0 ||
      (vector_bytes != line && t.stream))
    return false;
  for (std::int64_t r = 0; r < count; r += turned_rows) {
    next.ask(t.next_lines);
    const auto to = [&](std::int64_t j, std::int64_t part) HWY_ATTR {
      return reinterpret_cast<std::uint8_t*>(t.to.data + unit_column(unit, j) * t.to.stride +
                                             first + r + part);
    };
    const std::int8_t* const from = packed + unit * 16 + r * t.packed_bytes;
    if (t.stream)
      turn(from, t.packed_bytes, [&](std::int64_t j, std::int64_t part, hn::Vec<D8> v) HWY_ATTR {
        hn::Stream(v, D8(), to(j, part));
      });
    else
      turn(from, t.packed_bytes, [&](std::int64_t j, std::int64_t part, hn::Vec<D8> v) HWY_ATTR {
        hn::StoreU(v, D8(), to(j, part));
      });
  }
  return true;
#endif
}

// Transposes all units of a tile. Codes that were transposed into `lines` are written to q_t one
// unit later: a load of data that was just stored has to wait until the streaming stores in between
// have reached memory.
HWY_INLINE void turn_units(const Turning& t, const std::int8_t* packed, std::int64_t units,
                           std::int64_t first, std::int64_t count, LinesOfNext next) {
  std::int64_t waiting = -1;
  for (std::int64_t unit = 0; unit < units; ++unit) {
    if (turn_in_place(t, packed, unit, first, count, next)) continue;
    turn_unit(t, packed, unit, first, count, next, t.lines + unit % 2 * 16 * t.lines_bytes);
    if (waiting >= 0)
      put_unit(t, t.lines + waiting % 2 * 16 * t.lines_bytes, waiting, first, count);
    waiting = unit;
  }
  if (waiting >= 0) put_unit(t, t.lines + waiting % 2 * 16 * t.lines_bytes, waiting, first, count);
}

template <Made made, class T, class S>
HWY_INLINE void transpose_run(const cpu::TileJob& job, const cpu::Cut::Piece& piece, const S& scale,
                              std::int8_t* scratch) {
  const std::int64_t rows = piece.row_end - piece.row_begin;
  const std::int64_t cols = piece.col_end - piece.col_begin;
  const cpu::TileScratch room(job.tile_rows, cols);
  Turning t;
  t.to = {row(job.q_t, piece.col_begin, piece.row_begin), cols, rows, job.q_t.stride};
  t.packed_bytes = room.packed_bytes;
  t.lines = scratch + room.lines_offset;
  t.lines_bytes = room.lines_bytes;
  t.carried = scratch + room.carried_offset;
  t.stream = job.stream;
  t.next_lines = turned_rows * 16 * std::int64_t{sizeof(T)} / 2 / line;
  t.carries = job.stream &&
              (reinterpret_cast<std::uintptr_t>(t.to.data) % line != 0 || t.to.stride % line != 0);
  const std::int64_t units = (cols + unit_group - 1) / unit_group * (unit_group / 16);
  for (std::int64_t first = 0; first < rows; first += job.tile_rows) {
    const std::int64_t count = std::min(job.tile_rows, rows - first);
    const std::int64_t after = piece.row_begin + first + job.tile_rows;
    // The next tile is prefetched only with 16 lanes: with shorter vectors memory has less idle
    // time.
    const T* next = nullptr;
    if (lanes >= 16)
      next = after >= piece.row_end ? static_cast<const T*>(job.next)
             : job.asks_ahead       ? row<T>(job.x, after, piece.col_begin)
                                    : nullptr;
    for (std::int64_t i = 0; i < count; ++i)
      code_row<made, T>(job, piece.row_begin + first + i, piece.col_begin, piece.col_end,
                        next == nullptr ? nullptr : next + i * job.x.stride, scale,
                        scratch + i * t.packed_bytes);
    LinesOfNext lines;
    if (next != nullptr)
      lines = {reinterpret_cast<const char*>(next + cols / 2),
               job.x.stride * std::int64_t{sizeof(T)},
               (cols - cols / 2) * std::int64_t{sizeof(T)} / line};
    turn_units(t, scratch, units, first, count, lines);
  }
}

void TransposeRun(const cpu::TileJob& job, const cpu::Cut::Piece& piece, std::int8_t* scratch) {
  with_type(job.x.dtype, [&]<class T>(T) HWY_ATTR {
    if (!job.by_column) {
      if (job.scale.method == Scale::Method::divide)
        return transpose_run<Made::division, T>(job, piece, OneScale(job.scale), scratch);
      if constexpr (sizeof(T) == 2)
        if (const OneFactor one = OneFactor::of<T>(job.scale); one.suffices)
          return transpose_run<Made::product, T>(job, piece, OneScale(job.scale, one.factor),
                                                 scratch);
      transpose_run<Made::bracket, T>(job, piece, OneScale(job.scale), scratch);
    } else if (job.columns.bracketed(piece.col_begin, piece.col_end)) {
      transpose_run<Made::bracket, T>(job, piece, ScaleOfColumn{job.columns}, scratch);
    } else {
      transpose_run<Made::division, T>(job, piece, ScaleOfColumn{job.columns}, scratch);
    }
  });
  if (job.stream) hwy::FlushStream();
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(TransposeRun);

namespace cpu {

TileKernel tile_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(TransposeRun)[table_index(features)];
}

namespace {

// Quantizes all tiles, last rows first, because a preceding reduction has just left those in the
// caches.
void turn_tiles(ContextState& state, const Config& config, const TileJob& job,
                const core::PerWorker<std::int8_t>& scratch) {
  const auto kernel = tile_kernel(state.features);
  const std::int64_t across = (job.x.cols + config.tile_cols - 1) / config.tile_cols;
  // Cache lines that straddle tiles are carried from one tile to the next within a run of tiles, as
  // long as there are enough runs for all threads.
  std::int64_t run_rows = config.tile_rows;
  if (job.stream && job.q_t.stride % 64 != 0)
    while (job.x.rows * across > 4 * state.threads.count() * run_rows)
      run_rows += config.tile_rows;
  const std::int64_t down = (job.x.rows + run_rows - 1) / run_rows;
  // A task is several tiles side by side, so that each tile can prefetch the next one.
  const std::int64_t threads = state.threads.count();
  const std::int64_t together =
      threads == 1 ? across : std::clamp<std::int64_t>(down * across / (4 * threads), 1, across);
  const std::int64_t tasks_across = (across + together - 1) / together;
  const std::int64_t task_cols = together * config.tile_cols;
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return static_cast<const std::byte*>(job.x.data) +
           (r * job.x.stride + c) * static_cast<std::int64_t>(dtype_size_bytes(job.x.dtype));
  };
  state.threads.for_each(down * tasks_across, [&](std::int64_t task, int worker) {
    const std::int64_t r = (down - 1 - task / tasks_across) * run_rows;
    const std::int64_t begin = task % tasks_across * task_cols;
    const std::int64_t end = std::min(begin + task_cols, job.x.cols);
    TileJob part = job;
    part.asks_ahead = job.stream;  // without streaming, x may be in a cache
    for (std::int64_t c = begin; c < end; c += config.tile_cols) {
      part.next = nullptr;
      if (part.asks_ahead && c + config.tile_cols < end)
        part.next = at(r, c + config.tile_cols);
      else if (part.asks_ahead && threads == 1 && r > 0)
        part.next = at(r - run_rows, 0);
      kernel(part, {r, std::min(r + run_rows, job.x.rows), c, std::min(c + config.tile_cols, end)},
             scratch.of(worker));
    }
  });
}

void finish_columns(ContextState& state, const ColumnMagnitudes& magnitudes, std::int64_t cols,
                    float* absmax, const ColumnScales& scales) {
  state.threads.for_ranges(cols, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    finish_columns(magnitudes, begin, end, absmax, scales);
  });
}

void reset(ContextState& state, const ColumnMagnitudes& magnitudes) {
  state.threads.for_each(magnitudes.parts, [&](std::int64_t worker, int) {
    std::memset(magnitudes.of(static_cast<int>(worker), 0), 0,
                static_cast<std::size_t>(magnitudes.part_bytes));
  });
}

}  // namespace

void transpose(ContextState& state, const Config& config, const Request& o) {
  SWITCHBACK_ASSERT(config.tile_rows > 0 && config.tile_rows % 64 == 0);
  SWITCHBACK_ASSERT(config.tile_cols > 0 && config.tile_cols % 64 == 0);
  SWITCHBACK_ASSERT(config.panel_cols % config.tile_cols == 0);
  const std::int64_t rows = o.x.rows;
  const std::int64_t cols = o.x.cols;
  const int workers = state.threads.count();
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<std::int8_t> scratch(
      frame, workers,
      TileScratch(config.tile_rows, std::min(config.tile_cols, padded_columns(cols))).bytes);
  TileJob job;
  job.x = o.x;
  job.q_t = o.q_t.codes;
  job.stream = config.stream;
  job.tile_rows = config.tile_rows;

  if (o.q_t.scales == Scales::global) {
    job.q = o.q.codes;
    job.scale = global_scale(state, config, o.x);
    state.threads.for_each(
        1, [&](std::int64_t, int) { core::store(o.q_t.absmax.data(), 0, job.scale.absmax); });
    if (job.scale.method == Scale::Method::none) {
      fill_zero(state, o.q.codes);
      return fill_zero(state, o.q_t.codes);
    }
    return turn_tiles(state, config, job, scratch);
  }

  job.by_column = true;
  const std::int64_t padded = padded_columns(cols);
  job.columns = {frame.take<float>(padded), frame.take<float>(padded), frame.take<float>(padded),
                 frame.take<bool>(padded / 64)};
  ColumnMagnitudes magnitudes;
  magnitudes.parts = workers;
  magnitudes.dtype = o.x.dtype;
  magnitudes.part_bytes =
      padded * static_cast<std::int64_t>(dtype_size_bytes(o.x.dtype)) + core::worker_gap_bytes;
  magnitudes.data = frame.take<std::byte>(workers * magnitudes.part_bytes);
  reset(state, magnitudes);
  const auto raise = raise_kernel(state.features);

  if (o.q.scales == Scales::per_row) {
    const auto quantize = rowwise_kernel(state.features);
    constexpr std::int64_t rows_in_cache = 8;
    state.threads.for_ranges(rows, rows_in_cache,
                             [&](std::int64_t begin, std::int64_t end, int worker) {
                               quantize(o, begin, end, config.stream);
                               raise(o.x, {begin, end, 0, cols}, magnitudes.of(worker, 0));
                             });
    finish_columns(state, magnitudes, cols, o.q_t.absmax.data(), job.columns);
    return turn_tiles(state, config, job, scratch);
  }

  // If there are enough panels for all threads, one thread computes a panel's absmax and its codes:
  // threads that met twice for each panel would wait for the slowest one each time.
  const std::int64_t panels =
      config.panel_cols == 0 ? 1 : (cols + config.panel_cols - 1) / config.panel_cols;
  if (panels > 1 && panels >= workers) {
    const auto kernel = tile_kernel(state.features);
    state.threads.for_each(panels, [&](std::int64_t task, int worker) {
      const std::int64_t begin = task * config.panel_cols;
      const std::int64_t end = std::min(begin + config.panel_cols, cols);
      // No other worker has processed these columns, so the memory of the first worker is used.
      raise(o.x, {0, rows, begin, end}, magnitudes.of(0, begin));
      finish_columns(magnitudes.from(0, 1), begin, end, o.q_t.absmax.data(), job.columns);
      for (std::int64_t c = begin; c < end; c += config.tile_cols)
        kernel(job, {0, rows, c, std::min(c + config.tile_cols, end)}, scratch.of(worker));
    });
    return;
  }

  // The largest magnitudes of this many columns stay in the first-level cache.
  constexpr std::int64_t columns = 2048;
  const std::int64_t across = (cols + columns - 1) / columns;
  const std::int64_t piece_rows = std::clamp<std::int64_t>(
      task_elements(state, config, rows, cols) / std::min(columns, cols), 8, 1024);
  const std::int64_t down = (rows + piece_rows - 1) / piece_rows;
  state.threads.for_each(down * across, [&](std::int64_t task, int worker) {
    const std::int64_t r = task / across * piece_rows;
    const std::int64_t c = task % across * columns;
    raise(o.x, {r, std::min(r + piece_rows, rows), c, std::min(c + columns, cols)},
          magnitudes.of(worker, c));
  });
  finish_columns(state, magnitudes, cols, o.q_t.absmax.data(), job.columns);
  turn_tiles(state, config, job, scratch);
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
