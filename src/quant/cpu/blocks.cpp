// SPDX-License-Identifier: Apache-2.0
// Engine zone: quantization whose codes are passed on block by block instead of being stored as a
// matrix.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/blocks.cpp"
#include "hwy/foreach_target.h"
//
#include "core/assert.hpp"
#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "quant/blocks.hpp"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

template <class T>
HWY_INLINE std::uint32_t as_f32_bits(Bits<T> magnitude) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<std::uint32_t>(magnitude);
  else
    return std::bit_cast<std::uint32_t>(
        static_cast<float>(T::from_bits(static_cast<std::uint16_t>(magnitude))));
}

// From one read of some rows, computes the largest magnitude of each row, as bits of an f32, and
// updates those of the columns. A column's maximum is loaded and stored once for all these rows.
template <int rows, class T>
HWY_INLINE void row_and_column_maxima(const T* x, std::int64_t stride, std::int64_t cols,
                                      Bits<T>* columns, std::uint32_t* row_maxima) {
  using M = Magnitudes<T>;
  const typename M::D d;
  typename M::V largest[rows];
  for (int r = 0; r < rows; ++r)
    largest[r] = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + M::size <= cols; c += M::size) {
    auto max = hn::LoadU(d, columns + c);
    HWY_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      const auto v = M::load(x + r * stride + c);
      largest[r] = hn::Max(largest[r], v);
      max = hn::Max(max, v);
    }
    hn::StoreU(max, d, columns + c);
  }
  for (int r = 0; r < rows; ++r) {
    auto row_max = hn::GetLane(hn::MaxOfLanes(d, largest[r]));
    for (std::int64_t i = c; i < cols; ++i) {
      const auto bits = static_cast<Bits<T>>(std::bit_cast<Bits<T>>(core::load(x, r * stride + i)) &
                                             hwy::LimitsMax<Bits<T>>());
      row_max = std::max<Bits<T>>(row_max, bits);
      columns[i] = std::max<Bits<T>>(columns[i], bits);
    }
    row_maxima[r] = as_f32_bits<T>(static_cast<Bits<T>>(row_max));
  }
}

// Computes absmax of each row, and updates `columns`, the largest magnitudes of all columns as bits
// of the element type.
void BlockMaxima(const ConstAnyMatrix& x, std::int64_t begin, std::int64_t end, float* absmax,
                 void* columns) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    constexpr int together = 8;
    std::uint32_t maxima[together];
    std::int64_t r = begin;
    const auto put = [&](int count) HWY_ATTR {
      for (int i = 0; i < count; ++i)
        core::store(absmax, r - begin + i, absmax_from_bits(maxima[i]));
    };
    auto* const bits = static_cast<Bits<T>*>(columns);
    for (; r + together <= end; r += together) {
      row_and_column_maxima<together>(row<T>(x, r), x.stride, x.cols, bits, maxima);
      put(together);
    }
    for (; r < end; ++r) {
      row_and_column_maxima<1>(row<T>(x, r), x.stride, x.cols, bits, maxima);
      put(1);
    }
  });
}

template <Made made, class T>
HWY_INLINE void column_run(const T* x, std::int64_t cols, const cpu::ColumnScales& columns,
                           std::int64_t first_col, std::int8_t* q) {
  const ScaleOfColumn scale{columns};
  std::int64_t c = 0;
  for (; c + quad <= cols; c += quad)
    store_codes<false>(codes<made>(x + c, scale, first_col + c), q + c);
  if (c < cols)  // q has room for a whole quad (four vectors)
    store_codes<false>(codes<made>(Padded<T>(x + c, cols - c).elements, scale, first_col + c),
                       q + c);
}

void BlockCodes(const cpu::BlockTile& t) {
  with_type(t.x.dtype, [&]<class T>(T) HWY_ATTR {
    const auto& [row_begin, row_end, col_begin, col_end] = t.piece;
    const std::int64_t cols = col_end - col_begin;
    const bool bracketed = t.by_column != nullptr && t.columns.bracketed(col_begin, col_end);
    NoMax none;
    if (t.row_scale_step == 0 && t.by_column == nullptr && t.x.stride == cols && t.stride == cols) {
      // The rows have no gaps between them: one run.
      const T* const x = row<T>(t.x, row_begin, col_begin);
      return code_run<false>(x, (row_end - row_begin) * cols, *t.row_scales, t.by_row, x, none);
    }
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      const T* const x = row<T>(t.x, r, col_begin);
      if (t.next != nullptr) {
        const auto* const soon = static_cast<const char*>(t.next) +
                                 (r - row_begin) * t.x.stride * std::int64_t{sizeof(T)};
        for (std::int64_t i = 0; i < cols * std::int64_t{sizeof(T)}; i += 64)
          __builtin_prefetch(soon + i, 0, 2);  // into the second-level cache
      }
      const std::int64_t at = (r - row_begin) * t.stride;
      if (t.by_row != nullptr)
        code_run<false>(x, cols, t.row_scales[(r - row_begin) * t.row_scale_step], t.by_row + at, x,
                        none);
      if (t.by_column == nullptr) continue;
      if (bracketed)
        column_run<Made::bracket>(x, cols, t.columns, col_begin, t.by_column + at);
      else
        column_run<Made::division>(x, cols, t.columns, col_begin, t.by_column + at);
    }
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(BlockMaxima);
HWY_EXPORT(BlockCodes);

namespace cpu {
namespace {

// The size of a tile that is quantized with column scales, and possibly also with row scales. Its
// elements stay in the first-level cache.
constexpr std::int64_t tile_rows = 32;
constexpr std::int64_t tile_cols = 256;
static_assert(tile_rows % core::CodeBlock::row_step == 0);
static_assert(tile_cols % core::CodeBlock::col_step == 0);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// A range [begin, end) of the rows or of the columns of one matrix.
struct Range {
  std::int64_t begin, end;
};

// Quantizes matrices and passes their codes on. Codes need the scales of whole rows and columns, so
// each element is read twice: first for the scales, then for the code. If there are many
// independent parts (rows, columns or whole matrices), one thread does both for a part while that
// is in its caches. So threads never wait for each other.
class BlockRun {
 public:
  BlockRun(ContextState& state, const BlocksRequest& request)
      : state_(state),
        o_(request),
        rows_(request.x.rows / request.matrices),
        cols_(request.x.cols),
        by_row_(request.q.scales == Scales::per_row),
        by_column_(request.q_t.scales == Scales::per_column),
        global_(request.q.scales == Scales::global || request.q_t.scales == Scales::global),
        has_columns_(request.q_t.sink != nullptr),
        // If only q is wanted, a tile consists of whole rows, which are read in order. Their number
        // is such that the tile's codes stay in a cache.
        tile_cols_(has_columns_ ? tile_cols : padded_columns(cols_)),
        tile_rows_(has_columns_
                       ? tile_rows
                       : std::clamp(tile_rows * tile_cols / tile_cols_ / row_step * row_step,
                                    row_step, tile_rows)),
        prefetches_(has_columns_ && rows_ * cols_ * element_bytes() > cached_bytes),
        maxima_(HWY_DISPATCH_TABLE(BlockMaxima)[table_index(state.features)]),
        codes_(HWY_DISPATCH_TABLE(BlockCodes)[table_index(state.features)]),
        absmax_kernel_(absmax_kernel(state.features)),
        raise_kernel_(raise_kernel(state.features)) {}

  void run() {
    core::Workspace::Frame frame(state_.workspace);
    const int workers = state_.threads.count();
    scratch_ = {frame, workers, (has_columns_ ? 2 : 1) * tile_rows_ * tile_cols_};
    row_scales_ = {frame, workers, tile_rows_};
    if (!by_column_ && !global_) return run_rows();
    constexpr std::int64_t tasks_per_thread = 4;
    const std::int64_t wanted = tasks_per_thread * workers;
    // If neither rows nor the matrix have scales, columns are independent of each other, and each
    // tile_cols of them are a task.
    std::int64_t across = 1;
    if (!by_row_ && !global_) across = ceil_div(cols_, tile_cols);
    const bool alone = workers == 1 || o_.matrices * across >= wanted;
    parts_ = alone ? 1 : std::min(ceil_div(wanted, o_.matrices), ceil_div(rows_, tile_rows));
    part_rows_ = ceil_div(ceil_div(rows_, parts_), tile_rows) * tile_rows;
    parts_ = ceil_div(rows_, part_rows_);
    take_scales(frame, alone ? workers : o_.matrices);
    if (alone)
      run_alone(across);
    else
      run_together();
  }

 private:
  static constexpr std::int64_t row_step = core::CodeBlock::row_step;
  // Tiles of a larger matrix are prefetched: they are narrower than its rows, so the hardware
  // cannot predict the next reads. A smaller matrix is in a cache.
  static constexpr std::int64_t cached_bytes = std::int64_t{1} << 20;

  // Takes memory for maxima and scales. It is divided into slots: a slot holds the maxima of one
  // matrix's parts and its scales. There is a slot for each matrix, or for each worker that
  // processes a matrix, or some of its columns, alone.
  void take_scales(core::Workspace::Frame& frame, std::int64_t slots) {
    const std::int64_t padded = padded_columns(cols_);
    if (by_column_) {
      magnitudes_.dtype = o_.x.dtype;
      magnitudes_.part_bytes = padded * element_bytes() + core::worker_gap_bytes;
      magnitudes_.parts = slots * parts_;
      magnitudes_.data = frame.take<std::byte>(magnitudes_.parts * magnitudes_.part_bytes);
      columns_ = {frame.take<float>(slots * padded), frame.take<float>(slots * padded),
                  frame.take<float>(slots * padded), frame.take<bool>(slots * padded / 64)};
    }
    if (global_) maxima_of_parts_ = frame.take<std::uint32_t>(slots * parts_);
  }

  [[nodiscard]] ColumnScales columns_of(std::int64_t slot) const {
    const std::int64_t padded = padded_columns(cols_);
    return {columns_.lower + slot * padded, columns_.upper + slot * padded,
            columns_.divisor + slot * padded, columns_.group_bracketed + slot * padded / 64};
  }

  [[nodiscard]] std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(dtype_size_bytes(o_.x.dtype));
  }

  // Computes the largest magnitudes in one part of a matrix (some of its rows). `cols` may be some
  // of the columns only if rows have no scales.
  void take_maxima(std::int64_t matrix, std::int64_t slot, std::int64_t part, Range cols) const {
    const std::int64_t begin = matrix * rows_ + part * part_rows_;
    const std::int64_t end = matrix * rows_ + std::min(rows_, (part + 1) * part_rows_);
    if (global_)
      maxima_of_parts_[slot * parts_ + part] =
          absmax_kernel_(o_.x, {begin, end, cols.begin, cols.end});
    if (!by_column_) return;
    void* const columns = magnitudes_.of(slot * parts_ + part, cols.begin);
    std::memset(columns, 0, static_cast<std::size_t>((cols.end - cols.begin) * element_bytes()));
    if (by_row_)
      maxima_(o_.x, begin, end, o_.q.absmax.data() + begin, columns);
    else
      raise_kernel_(o_.x, {begin, end, cols.begin, cols.end}, columns);
  }

  // Computes the scales of a matrix's columns from the maxima of all its parts.
  void finish_columns_of(std::int64_t matrix, std::int64_t slot, Range cols) const {
    finish_columns(magnitudes_.from(slot * parts_, parts_), cols.begin, cols.end,
                   o_.q_t.absmax.data() + matrix * cols_, columns_of(slot));
  }

  [[nodiscard]] Scale global_scale_of(std::int64_t slot) const {
    const std::uint32_t* const parts = maxima_of_parts_ + slot * parts_;
    return Scale::of(absmax_from_bits(*std::max_element(parts, parts + parts_)));
  }

  // Computes the codes of one row of tiles, and passes them on tile by tile.
  void code(std::int64_t matrix, std::int64_t slot, Range rows, Range cols, int worker) const {
    const std::int64_t begin = matrix * rows_ + rows.begin;
    const std::int64_t count = rows.end - rows.begin;
    Scale* const scales = row_scales_.of(worker);
    if (global_)
      scales[0] = global_scale_of(slot);
    else if (by_row_)
      for (std::int64_t r = 0; r < count; ++r)
        scales[r] = Scale::of(core::load(o_.q.absmax.data(), begin + r));
    BlockTile tile{
        .x = o_.x, .row_scales = scales, .row_scale_step = global_ ? 0 : 1, .stride = tile_cols_};
    std::int8_t* const scratch = scratch_.of(worker);
    if (by_row_ || global_) tile.by_row = scratch;
    if (by_column_) {
      tile.columns = columns_of(slot);
      tile.by_column = scratch + tile_rows_ * tile_cols_;
    }
    for (std::int64_t col = cols.begin; col < cols.end; col += tile_cols_) {
      const std::int64_t col_end = std::min(col + tile_cols_, cols.end);
      tile.piece = {begin, begin + count, col, col_end};
      if (prefetches_) tile.next = next_tile(matrix, rows, cols, col);
      codes_(tile);
      const auto hand_over = [&](const BlocksOut& out, const std::int8_t* codes) {
        if (out.sink != nullptr)
          out.sink->take({.matrix = matrix,
                          .row = rows.begin,
                          .col = col,
                          .codes = {codes, count, col_end - col, tile_cols_}});
      };
      hand_over(o_.q, tile.by_row);
      hand_over(o_.q_t, by_column_ ? tile.by_column : tile.by_row);
    }
  }

  [[nodiscard]] const void* at(std::int64_t row, std::int64_t col) const {
    return static_cast<const std::byte*>(o_.x.data) + (row * o_.x.stride + col) * element_bytes();
  }

  // The address of the tile to prefetch while the tile of these rows that begins at column `col` is
  // quantized; null: nothing is prefetched.
  [[nodiscard]] const void* next_tile(std::int64_t matrix, Range rows, Range cols,
                                      std::int64_t col) const {
    const std::int64_t first = matrix * rows_;
    if (col + tile_cols < cols.end) return at(first + rows.begin, col + tile_cols);
    return rows.begin >= tile_rows ? at(first + rows.begin - tile_rows, cols.begin) : nullptr;
  }

  void store_global(std::int64_t matrix, std::int64_t slot) const {
    for (const BlocksOut* const out : {&o_.q, &o_.q_t})
      if (out->scales == Scales::global)
        core::store(out->absmax.data(), matrix, global_scale_of(slot).absmax);
  }

  // Used if only rows have scales: each row is read from memory once, and quantized while the next
  // one is read.
  void run_rows() const {
    const auto quantize = rowwise_kernel(state_.features);
    const std::int64_t tiles = ceil_div(rows_, tile_rows_);
    state_.threads.for_each(o_.matrices * tiles, [&](std::int64_t task, int worker) {
      const std::int64_t matrix = task / tiles;
      const std::int64_t row = task % tiles * tile_rows_;
      const std::int64_t count = std::min(tile_rows_, rows_ - row);
      const std::int64_t first = matrix * rows_ + row;
      Request part;
      part.x = {at(first, 0), o_.x.dtype, count, cols_, o_.x.stride};
      part.q = {Scales::per_row,
                {scratch_.of(worker), count, cols_, tile_cols_},
                o_.q.absmax.subspan(static_cast<std::size_t>(first))};
      quantize(part, 0, count, false);
      o_.q.sink->take({.matrix = matrix, .row = row, .col = 0, .codes = part.q.codes});
    });
  }

  // Each task computes the scales and the codes of one matrix, or of some of its columns. It
  // quantizes first the rows that it has read last, because these are still in a cache.
  void run_alone(std::int64_t across) const {
    state_.threads.for_each(o_.matrices * across, [&](std::int64_t task, int worker) {
      const std::int64_t matrix = task / across;
      const std::int64_t col = task % across * tile_cols;
      const Range cols = {col, across == 1 ? cols_ : std::min(col + tile_cols, cols_)};
      take_maxima(matrix, worker, 0, cols);
      if (by_column_) finish_columns_of(matrix, worker, cols);
      if (global_) store_global(matrix, worker);
      for (std::int64_t tile = ceil_div(rows_, tile_rows_); tile-- > 0;)
        code(matrix, worker, {tile * tile_rows_, std::min((tile + 1) * tile_rows_, rows_)}, cols,
             worker);
    });
  }

  void run_together() const {
    state_.threads.for_each(o_.matrices * parts_, [&](std::int64_t task, int) {
      take_maxima(task / parts_, task / parts_, task % parts_, {0, cols_});
    });
    if (by_column_) {
      constexpr std::int64_t task_cols = 512;
      const std::int64_t across = ceil_div(cols_, task_cols);
      state_.threads.for_each(o_.matrices * across, [&](std::int64_t task, int) {
        const std::int64_t col = task % across * task_cols;
        finish_columns_of(task / across, task / across, {col, std::min(col + task_cols, cols_)});
      });
    }
    const std::int64_t tiles = ceil_div(rows_, tile_rows_);
    const std::int64_t tasks = o_.matrices * tiles;
    state_.threads.for_each(tasks, [&](std::int64_t task, int worker) {
      const std::int64_t matrix = (tasks - 1 - task) / tiles;
      const std::int64_t row = (tasks - 1 - task) % tiles * tile_rows_;
      if (global_ && row == 0) store_global(matrix, matrix);
      code(matrix, matrix, {row, std::min(row + tile_rows_, rows_)}, {0, cols_}, worker);
    });
  }

  ContextState& state_;
  const BlocksRequest& o_;
  std::int64_t rows_;
  std::int64_t cols_;
  bool by_row_;
  bool by_column_;
  bool global_;
  bool has_columns_;
  std::int64_t tile_cols_;
  std::int64_t tile_rows_;
  bool prefetches_;
  void (*maxima_)(const ConstAnyMatrix&, std::int64_t, std::int64_t, float*, void*);
  void (*codes_)(const BlockTile&);
  AbsmaxKernel absmax_kernel_;
  RaiseKernel raise_kernel_;

  std::int64_t part_rows_ = 0;            // rows of a part: one task computes the maxima of a part
  std::int64_t parts_ = 1;                // of a matrix
  core::PerWorker<std::int8_t> scratch_;  // the codes of a tile, by row and by column
  core::PerWorker<Scale> row_scales_;
  ColumnMagnitudes magnitudes_;
  ColumnScales columns_;
  std::uint32_t* maxima_of_parts_ = nullptr;
};

}  // namespace
}  // namespace cpu

bool has_blocks(const ContextState& state) noexcept {
  return state.on_cpu() && state.features.level() != core::Isa::scalar;
}

void quantize_blocks(ContextState& state, const BlocksRequest& request) {
  SWITCHBACK_ASSERT(request.matrices > 0 && request.x.rows % request.matrices == 0);
  SWITCHBACK_ASSERT(request.x.rows > 0 && request.x.cols > 0);
  cpu::BlockRun(state, request).run();
}

}  // namespace switchback::quant
#endif
