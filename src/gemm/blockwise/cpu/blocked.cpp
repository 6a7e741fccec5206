// SPDX-License-Identifier: Apache-2.0
// Engine zone: the blockwise int8 product on the CPU, in the tiles of the int8 GEMM. After each
// block of rows a tile's int32 sums are scaled and added to its f32 sums (promoted). After each
// superblock the f32 sums are added to d (folded).
//
// b is packed once. A task computes some rows and columns of d. It goes along m in pieces of whole
// blocks, and prepares its rows of a for each piece in its worker's scratch memory. These prepared
// rows stay in the second-level cache while all panels of b are multiplied with them. If there is
// only one piece, memory for the f32 sums of one panel suffices.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "core/assert.hpp"
#include "core/cpu/resources.hpp"
#include "core/per_worker.hpp"
#include "core/unaligned.hpp"
#include "gemm/blockwise/engine.hpp"
#include "gemm/int8/cpu/blocked.hpp"
#include "gemm/int8/cpu/blocked_engines.hpp"
#include "gemm/int8/cpu/blocked_product.hpp"
#include "hwy/cache_control.h"
#include "switchback/gemm.hpp"

namespace switchback::blockwise {

namespace {

using gemm_int8::ceil_div;
using gemm_int8::even_block;
using gemm_int8::MicroKernel;
using gemm_int8::round_up;

constexpr std::int64_t tasks_per_thread = 4;

// The scratch memory of one worker.
struct WorkerScratch {
  std::int8_t* a = nullptr;       // prepared rows of a for one piece; null: a is read in place
  std::int32_t* start = nullptr;  // start values of the int32 sums, [blocks of a piece][rows]
  std::int32_t* sums = nullptr;   // int32 sums of a tile
  float* partial = nullptr;       // f32 sums: of all tiles of the task, or of one panel
  float* total = nullptr;         // the task's part of d in f32, if d is f16 or bf16
};

class Run {
 public:
  Run(const MicroKernel& kernel, ContextState& state, const BlockwiseProblem& problem,
      const BlockwiseOperands& operands)
      : kernel_(kernel),
        state_(state),
        p_(problem),
        o_(operands),
        blocks_(problem.blocks()),
        superblock_(blockwise_superblock_rows / problem.block_rows),
        frame_(state.workspace) {}

  void operator()() {
    // Codes per row, rounded up to whole steps of any kernel: 64 codes if the kernel copies a,
    // otherwise 16 (4 groups of 4).
    depth_ = round_up(p_.m, copies() ? 64 : 16);
    choose_blocks();
    pieces_ = piece_end(0) < blocks_;
    streams_ = gemm_int8::streams_output(kernel_.streams_folds, state_.threads, p_.output, p_.n,
                                         p_.k, p_.stride_d, o_.d);
    take_memory();
    // All memory is taken: nothing can fail after this point.
    copy_scales();
    gemm_int8::blocked_pack(kernel_, state_.threads, {o_.b, p_.k, depth_, p_.stride_b}, packed_);
    const std::int64_t row_blocks = ceil_div(p_.n, rows_);
    state_.threads.for_each(row_blocks * ceil_div(p_.k, cols_), [&](std::int64_t task, int worker) {
      const gemm_int8::TileScope scope(kernel_);
      compute(task % row_blocks * rows_, task / row_blocks * cols_, of(worker));
      if (streams_) hwy::FlushStream();
    });
  }

 private:
  void choose_blocks() {
    const std::int64_t wanted =
        state_.threads.count() == 1 ? 1 : state_.threads.count() * tasks_per_thread;
    // The most rows and columns of d per task. A copy of the rows of a (for block_tile) pays more,
    // the more columns use it. Without a copy, the first-level cache holds a block's codes of 48
    // rows with their f32 sums, and a panel's codes. (AVX-512 VNNI, two threads: with 96 rows, dW
    // from 256 rows of the gradient takes 1.3 times as long, from 1024 rows 4 % longer.)
    const std::int64_t most_rows = copies() ? 128 : 48;
    const std::int64_t most_cols = copies() ? 1024 : 512;
    rows_ = even_block(p_.n, most_rows, kernel_.rows);
    const std::int64_t across = ceil_div(wanted, ceil_div(p_.n, rows_));
    cols_ = even_block(p_.k, std::min(most_cols, ceil_div(p_.k, across)), kernel_.cols);
    const std::int64_t down = ceil_div(wanted, ceil_div(p_.k, cols_));
    rows_ = even_block(p_.n, std::min(most_rows, ceil_div(p_.n, down)), kernel_.rows);
    // A piece has as many blocks as fit: its prepared rows of a take a quarter of the second-level
    // cache.
    const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
    const std::int64_t room = (l2 > 0 ? l2 : std::int64_t{1} << 20) / 4;
    const std::int64_t block_bytes =
        rows_ * p_.block_rows * std::max<std::int64_t>(1, a_copy_bytes());
    piece_blocks_ = std::clamp<std::int64_t>(room / block_bytes, 1, superblock_);
  }

  // Whether the kernel's tiles read a copy of a that copy_rows() makes.
  [[nodiscard]] bool copies() const { return kernel_.block_tile != nullptr; }
  [[nodiscard]] std::int64_t a_copy_bytes() const { return copies() ? 1 : kernel_.a_copy_bytes; }

  // The end of the piece that begins with this block. A piece never extends beyond its superblock.
  [[nodiscard]] std::int64_t piece_end(std::int64_t block) const {
    const std::int64_t whole = block / superblock_ * superblock_ + superblock_;
    return std::min({block + piece_blocks_, whole, blocks_});
  }

  // The number of codes of a block that are multiplied: all except the padding of the last block.
  [[nodiscard]] std::int64_t codes(std::int64_t block) const {
    return std::min(p_.block_rows, depth_ - block * p_.block_rows);
  }

  void take_memory() {
    const int workers = state_.threads.count();
    padded_rows_ = round_up(rows_, kernel_.rows_together);
    padded_k_ = gemm_int8::padded_columns(p_.k);
    packed_ = frame_.take<std::int8_t>(
        static_cast<std::int64_t>(gemm_int8::blocked_packed_bytes(kernel_, p_.k, depth_)));
    scale_a_ = frame_.take<float>(blocks_ * p_.n);
    scale_b_ = frame_.take<float>(blocks_ * padded_k_);
    const std::int64_t a_bytes = padded_rows_ * piece_blocks_ * p_.block_rows * a_copy_bytes();
    tile_sums_ = round_up(std::int64_t{kernel_.rows} * kernel_.cols, 16);
    const bool totals = p_.output != DType::f32 && (p_.accumulate || blocks_ > superblock_);
    a_ = {frame_, workers, a_bytes};
    start_ = {frame_, workers, piece_blocks_ * padded_rows_};
    sums_ = {frame_, workers, (copies() ? 2 : 1) * tile_sums_};
    partial_ = {frame_, workers, padded_tiles(rows_) * (pieces_ ? cols_ : kernel_.cols)};
    total_ = {frame_, workers, totals ? rows_ * cols_ : 0};
  }

  [[nodiscard]] WorkerScratch of(int worker) const {
    return {a_.of(worker), start_.of(worker), sums_.of(worker), partial_.of(worker),
            total_.of(worker)};
  }

  // Copies the scales to aligned memory, and pads the scales of b to whole tiles.
  void copy_scales() const {
    state_.threads.for_ranges(blocks_, 16, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t b = begin; b < end; ++b) {
        const auto copy = [b](const float* from, std::int64_t count, float* to) {
          std::memcpy(to, reinterpret_cast<const std::byte*>(from) + b * count * 4,
                      static_cast<std::size_t>(count) * 4);
        };
        copy(o_.absmax_a, p_.n, scale_a_ + b * p_.n);
        copy(o_.absmax_b, p_.k, scale_b_ + b * padded_k_);
        std::fill_n(scale_b_ + b * padded_k_ + p_.k, padded_k_ - p_.k, 0.0f);
      }
    });
  }

  void compute(std::int64_t row, std::int64_t col, const WorkerScratch& scratch) const {
    const std::int64_t rows = std::min(rows_, p_.n - row);
    const std::int64_t end_col = std::min(col + cols_, p_.k);
    for (std::int64_t begin = 0; begin < blocks_; begin = piece_end(begin)) {
      const std::int64_t end = piece_end(begin);
      prepare(row, rows, begin, end, scratch);
      for (std::int64_t c = col; c < end_col; c += kernel_.cols)
        panel({row, rows, c, c - col}, begin, end, scratch);
    }
  }

  // The number of rows, rounded up to whole tiles.
  [[nodiscard]] std::int64_t padded_tiles(std::int64_t rows) const {
    return round_up(rows, kernel_.rows);
  }
  [[nodiscard]] gemm_int8::RowTiles tiles_of(std::int64_t rows) const {
    return {rows, kernel_.rows, kernel_.rows_together};
  }

  void prepare(std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end,
               const WorkerScratch& scratch) const {
    const std::int8_t* const a = o_.a + row * p_.stride_a + begin * p_.block_rows;
    if (copies()) {
      const gemm_int8::RowTiles tiles = tiles_of(rows);
      for (std::int64_t t = 0; t < tiles.count; ++t)
        kernel_.copy_rows(a + tiles.begin(t) * p_.stride_a, p_.stride_a, tiles.size(t),
                          (end - begin) * p_.block_rows,
                          scratch.a + copied(tiles.begin(t), 0, end - begin));
      return;
    }
    for (std::int64_t r = 0; r < rows; r += kernel_.rows_together)
      for (std::int64_t b = begin; b < end; ++b)
        kernel_.prepare(
            a + r * p_.stride_a + (b - begin) * p_.block_rows, p_.stride_a,
            static_cast<int>(std::min<std::int64_t>(kernel_.rows_together, rows - r)), codes(b),
            scratch.a == nullptr ? nullptr : scratch.a + copied(r, b - begin, end - begin),
            scratch.start + (b - begin) * padded_rows_ + r);
  }

  // The offset of the prepared codes of a row and block in a worker's copy of a piece with `blocks`
  // blocks.
  [[nodiscard]] std::int64_t copied(std::int64_t row, std::int64_t block,
                                    std::int64_t blocks) const {
    return (row * blocks + block * kernel_.rows_together) * p_.block_rows * a_copy_bytes();
  }

  // The rows of a task in one panel of b. The panel's first column is `offset` columns after the
  // first column of the task.
  struct Panel {
    std::int64_t row, rows, col, offset;
  };

  // Adds the products of the blocks [begin, end) to the f32 sums of a panel, and adds these sums to
  // d where a superblock ends. A tile takes about 1500 cycles for one block of 256 rows. Therefore
  // values that neighbouring tiles share are computed once.
  void panel(const Panel& at, std::int64_t begin, std::int64_t end,
             const WorkerScratch& scratch) const {
    const gemm_int8::RowTiles tiles = tiles_of(at.rows);
    float* const partial =
        scratch.partial + (pieces_ ? at.offset * padded_tiles(at.rows) : std::int64_t{0});
    std::int32_t* sums = scratch.sums;
    gemm_int8::FoldTile fold{};
    gemm_int8::PromotionTile before{};
    for (std::int64_t b = begin; b < end; ++b) {
      const bool begins = b % superblock_ == 0;
      const bool ends = (b + 1) % superblock_ == 0 || b + 1 == blocks_;
      const FoldOrigin origin = ends ? begin_fold(at, b, scratch, fold) : FoldOrigin{};
      const float* const scale_a = scale_a_ + b * p_.n + at.row;
      const float* const scale_b = scale_b_ + b * padded_k_ + at.col;
      gemm_int8::Tile tile{};
      if (!copies()) begin_tiles(at, b, begin, end, scratch, tile);
      const std::byte* const first_a = static_cast<const std::byte*>(tile.a);
      std::int64_t r = 0;
      for (std::int64_t t = 0; t < tiles.count; ++t) {
        const std::int64_t next = tiles.begin(t + 1);
        const int height = static_cast<int>(next - r);
        if (copies())
          copied_tile(at, b, begin, end, r, height, sums, before.rows > 0 ? &before : nullptr,
                      scratch);
        float* const p = partial + t * kernel_.rows * kernel_.cols;
        if (ends) {
          fold.p = p;
          fold.rows = height;
          fold.d = origin.d + r * fold.stride_d_bytes;
          fold.start =
              origin.start == nullptr ? nullptr : origin.start + r * fold.stride_start_bytes;
        }
        // The struct is assigned field by field: copying one that was just written would wait for
        // all earlier stores, including those of the last tile to d.
        before.sums = sums;
        before.p = p;
        before.first = begins;
        before.rows = height;
        before.scale_a = scale_a + r;
        before.scale_b = scale_b;
        before.fold = ends ? &fold : nullptr;
        if (copies()) {
          // The sums of this tile are promoted during the next tile, which therefore needs other
          // memory for its sums.
          sums = sums == scratch.sums ? scratch.sums + tile_sums_ : scratch.sums;
        } else {
          tile.a = first_a + r * tile.stride_a_bytes;
          tile.start = scratch.start + (b - begin) * padded_rows_ + r;
          if (kernel_.promotes_tiles) tile.promotion = &before;
          kernel_.tile[height - 1](tile);
          if (!kernel_.promotes_tiles) kernel_.promote(before);
        }
        r = next;
      }
    }
    if (copies()) kernel_.promote(before);
  }

  [[nodiscard]] const std::int8_t* panel_codes(const Panel& at, std::int64_t block) const {
    return packed_ + at.col * depth_ + block * p_.block_rows * kernel_.strip_cols;
  }

  // Sets what all tiles of a block and panel share, and the address of the codes of the panel's
  // first row.
  void begin_tiles(const Panel& at, std::int64_t b, std::int64_t begin, std::int64_t end,
                   const WorkerScratch& scratch, gemm_int8::Tile& tile) const {
    if (scratch.a != nullptr) {
      tile.a = scratch.a + copied(0, b - begin, end - begin);
      tile.stride_a_bytes = copied(1, 0, end - begin);
    } else {
      tile.a = o_.a + at.row * p_.stride_a + b * p_.block_rows;
      tile.stride_a_bytes = p_.stride_a;
    }
    tile.panel = panel_codes(at, b);
    tile.strip_bytes = kernel_.strip_cols * depth_;
    tile.k = codes(b);
    tile.sums = scratch.sums;
  }

  void copied_tile(const Panel& at, std::int64_t b, std::int64_t begin, std::int64_t end,
                   std::int64_t r, int height, std::int32_t* sums,
                   const gemm_int8::PromotionTile* before, const WorkerScratch& scratch) const {
    const std::int64_t height_of_copy = round_up(height, kernel_.rows_together);
    kernel_.block_tile(
        {.a = scratch.a + copied(r, 0, end - begin) + (b - begin) * p_.block_rows * height_of_copy,
         .panel = panel_codes(at, b),
         .strip_bytes = kernel_.strip_cols * depth_,
         .k = codes(b),
         .rows = height,
         .sums = sums,
         .before = before});
  }

  // The addresses of a panel's first row in d, and in the matrix that is added to the sums (null:
  // none).
  struct FoldOrigin {
    std::byte* d = nullptr;
    const std::byte* start = nullptr;
  };

  // Describes how the f32 sums of a panel are added to d when block b ends a superblock. After the
  // last superblock d is stored in its type; before that it is kept in f32.
  FoldOrigin begin_fold(const Panel& at, std::int64_t b, const WorkerScratch& scratch,
                        gemm_int8::FoldTile& tile) const {
    const bool first = b < superblock_;
    const bool last = b + 1 == blocks_;
    const auto element = static_cast<std::int64_t>(dtype_size_bytes(p_.output));
    FoldOrigin at_first;
    at_first.d = static_cast<std::byte*>(o_.d) + (at.row * p_.stride_d + at.col) * element;
    tile.cols = std::min<std::int64_t>(kernel_.cols, p_.k - at.col);
    tile.stride_d_bytes = p_.stride_d * element;
    tile.streams = streams_ && first && last;
    tile.output = gemm_int8::output_of(p_.output);
    if (p_.output == DType::f32) {
      if (!first || p_.accumulate) at_first.start = at_first.d;
      tile.stride_start_bytes = tile.stride_d_bytes;
    } else if (scratch.total != nullptr) {
      auto* const total = reinterpret_cast<std::byte*>(scratch.total + at.offset);
      if (first && p_.accumulate) widen(at, tile.cols, scratch.total + at.offset);
      if (!first || p_.accumulate) at_first.start = total;
      tile.stride_start_bytes = cols_ * 4;
      if (!last) {
        at_first.d = total;
        tile.stride_d_bytes = cols_ * 4;
        tile.output = gemm_int8::Output::f32;
      }
    }
    return at_first;
  }

  void widen(const Panel& at, std::int64_t cols, float* total) const {
    for (std::int64_t r = 0; r < at.rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        total[r * cols_ + c] =
            core::load_float(o_.d, p_.output, (at.row + r) * p_.stride_d + at.col + c);
  }

  const MicroKernel& kernel_;
  ContextState& state_;
  const BlockwiseProblem& p_;
  const BlockwiseOperands& o_;
  const std::int64_t blocks_;
  const std::int64_t superblock_;  // in blocks
  core::Workspace::Frame frame_;

  bool streams_ = false;  // whether d is written with non-temporal stores
  bool pieces_ = false;   // whether a task has several pieces

  std::int64_t depth_ = 0;  // codes of a row that are multiplied, with padding

  // The rows and columns of d that one task computes, and the blocks of a piece.
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t piece_blocks_ = 0;
  std::int64_t padded_rows_ = 0;

  std::int8_t* packed_ = nullptr;
  float* scale_a_ = nullptr;
  float* scale_b_ = nullptr;
  std::int64_t padded_k_ = 0;
  // The scratch memory of all workers: each has its own part.
  std::int64_t tile_sums_ = 0;  // of one tile
  core::PerWorker<std::int8_t> a_;
  core::PerWorker<std::int32_t> start_;
  core::PerWorker<std::int32_t> sums_;
  core::PerWorker<float> partial_;
  core::PerWorker<float> total_;
};

template <const MicroKernel& Kernel>
constexpr Engine blocked(EngineId id) {
  return {
      .id = id,
      .name = gemm_int8::engine_name(id),
      .unavailable =
          [](const ContextState& state) { return gemm_int8::kernel_unavailable(Kernel, state); },
      .run =
          [](ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig&,
             const BlockwiseOperands& o) {
            SWITCHBACK_ASSERT(p.n > 0 && p.k > 0 && p.padded_m > 0);
            Run(Kernel, state, p, o)();
          }};
}

}  // namespace

std::span<const Engine* const> cpu_engines() noexcept {
#define SWITCHBACK_ENGINE(name) blocked<gemm_int8::name##_kernel>(EngineId::name),
  static constexpr std::array blocked_engines = {SWITCHBACK_TILE_KERNELS(SWITCHBACK_ENGINE)};
#undef SWITCHBACK_ENGINE
  static constexpr auto all = [] {
    std::array<const Engine*, blocked_engines.size() + 1> engines = {};
    for (std::size_t i = 0; i < blocked_engines.size(); ++i)
      engines[i] = &blocked_engines[i];
    engines.back() = &reference_engine;
    return engines;
  }();
  return all;
}

}  // namespace switchback::blockwise
