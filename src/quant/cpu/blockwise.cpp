// SPDX-License-Identifier: Apache-2.0
// Engine zone: codes with a scale for each column of a block of rows, stored transposed. They are
// computed alone or together with the codes of the rows; alone they may also be rounded
// stochastically.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/assert.hpp"
#include "core/dry_run.hpp"
#include "core/per_worker.hpp"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/transpose.hpp"
#include "quant/passes.hpp"

namespace switchback::quant::cpu {

namespace {

// What a thread writes while it works on a panel, which is a block of rows by some columns.
struct WorkerScratch {
  std::byte* magnitudes;  // the largest magnitudes of all columns that are read at a time
  ColumnScales scales;    // of a panel
  std::int8_t* tile;
};

class BlockwiseRun {
 public:
  BlockwiseRun(ContextState& state, const Config& config, const Request& request)
      : state_(state),
        config_(config),
        o_(request),
        cols_(request.x.cols),
        block_rows_(request.q_t.block_rows),
        blocks_((request.x.rows + block_rows_ - 1) / block_rows_),
        panel_(std::min(config.panel_cols, padded_columns(cols_))),
        element_bytes_(static_cast<std::int64_t>(dtype_size_bytes(request.x.dtype))),
        strips_(goes_by_strips(config, request) ? strip_kernel(state.features) : nullptr),
        frame_(state.workspace) {}

  void operator()() {
    const bool rows_too = o_.q.scales == Scales::per_row;
    const std::int64_t workers = state_.threads.count();
    // A block's second read finds it in a cache if one thread processes the whole block. If there
    // are too few blocks for all threads, the threads share them, and the rows are read separately.
    if (rows_too && (workers == 1 || blocks_ >= 2 * workers)) {
      take_memory(cols_);
      float* const sums =
          o_.column_sums.empty() ? nullptr : frame_.take<float>(sum_blocks(o_.x.rows) * cols_);
      state_.threads.for_each(
          blocks_, [&](std::int64_t b, int worker) { whole_block(b, sums, of(worker)); });
      if (sums != nullptr) finish_column_sums(state_, sums, sum_blocks(o_.x.rows), o_);
      return;
    }
    take_memory(panel_);
    core::all_or_nothing(state_, [&] {
      if (rows_too) rows();
      panels();
    });
  }

 private:
  // Whether codes are computed strip by strip. If they are stored past the caches, each strip must
  // then fill whole cache lines of q_t.
  static bool goes_by_strips(const Config& config, const Request& o) {
    const MatrixView<std::int8_t>& q_t = o.q_t.codes;
    const bool in_lines =
        reinterpret_cast<std::uintptr_t>(q_t.data) % 64 == 0 && q_t.stride % 64 == 0;
    return !o.stochastic && (in_lines || !config.stream);
  }

  void take_memory(std::int64_t columns) {
    const int workers = state_.threads.count();
    if (strips_ != nullptr) {
      tiles_ = {frame_, workers, strip_scratch_bytes(block_rows_)};
      return;
    }
    magnitude_bytes_ = padded_columns(columns) * element_bytes_;
    magnitudes_ = {frame_, workers, magnitude_bytes_};
    tiles_ = {frame_, workers, TileScratch(config_.tile_rows, panel_).bytes};
    const std::int64_t scales = workers * padded_columns(panel_);
    scales_ = {frame_.take<float>(scales), frame_.take<float>(scales), frame_.take<float>(scales),
               frame_.take<bool>(scales / 64)};
  }

  [[nodiscard]] WorkerScratch of(int worker) const {
    if (strips_ != nullptr) return {nullptr, {}, tiles_.of(worker)};
    const std::int64_t first = worker * padded_columns(panel_);
    return {magnitudes_.of(worker),
            {scales_.lower + first, scales_.upper + first, scales_.divisor + first,
             scales_.group_bracketed + first / 64},
            tiles_.of(worker)};
  }

  [[nodiscard]] std::int64_t end_row(std::int64_t block) const {
    return std::min((block + 1) * block_rows_, o_.x.rows);
  }
  [[nodiscard]] std::int64_t end_col(std::int64_t col) const {
    return std::min(col + panel_, cols_);
  }

  // Computes the codes of the rows, and the column sums if they are wanted, in a separate read of
  // x.
  void rows() {
    Request part = o_;
    part.q_t = {};
    if (o_.column_sums.empty())
      rowwise(state_, config_, part);
    else
      rowwise_column_sums(state_, config_, part);
  }

  void panels() {
    const auto raise = raise_kernel(state_.features);
    const std::int64_t across = (cols_ + panel_ - 1) / panel_;
    // A task is several panels side by side, so that each panel can prefetch the next one.
    const std::int64_t workers = state_.threads.count();
    const std::int64_t together =
        std::clamp<std::int64_t>(blocks_ * across / (4 * workers), 1, across);
    const std::int64_t tasks_across = (across + together - 1) / together;
    state_.threads.for_each(blocks_ * tasks_across, [&](std::int64_t task, int worker) {
      const std::int64_t b = task / tasks_across;
      const std::int64_t begin = task % tasks_across * together * panel_;
      const std::int64_t end = std::min(begin + together * panel_, cols_);
      const WorkerScratch scratch = of(worker);
      for (std::int64_t col = begin; col < end; col += panel_) {
        if (strips_ != nullptr) {
          by_strips(b, col, col == begin, end, scratch);
          continue;
        }
        std::memset(scratch.magnitudes, 0, static_cast<std::size_t>(magnitude_bytes_));
        raise(o_.x, {b * block_rows_, end_row(b), col, end_col(col)}, scratch.magnitudes);
        codes(b, col, config_.stream && col + panel_ < end, scratch.magnitudes, scratch);
      }
    });
  }

  void whole_block(std::int64_t b, float* sums, const WorkerScratch& scratch) const {
    const auto quantize = rowwise_kernel(state_.features);
    const auto raise = raise_kernel(state_.features);
    const auto add = add_kernel(state_.features);
    constexpr std::int64_t rows_in_cache = 8;
    static_assert(column_sum_block_rows % rows_in_cache == 0);
    if (strips_ == nullptr)
      std::memset(scratch.magnitudes, 0, static_cast<std::size_t>(magnitude_bytes_));
    for (std::int64_t r = b * block_rows_; r < end_row(b); r += rows_in_cache) {
      const std::int64_t to = std::min(r + rows_in_cache, end_row(b));
      quantize(o_, r, to, config_.stream);
      if (strips_ == nullptr) raise(o_.x, {r, to, 0, cols_}, scratch.magnitudes);
      if (sums == nullptr) continue;
      float* const block_sums = sums + r / column_sum_block_rows * cols_;
      if (r % column_sum_block_rows == 0) std::fill_n(block_sums, cols_, 0.0f);
      add(o_.x, {r, to, 0, cols_}, block_sums);
    }
    for (std::int64_t col = 0; col < cols_; col += panel_)
      if (strips_ != nullptr)
        by_strips(b, col, col == 0, cols_, scratch);
      else
        codes(b, col, false, scratch.magnitudes + col * element_bytes_, scratch);
  }

  [[nodiscard]] const void* at(std::int64_t row, std::int64_t col) const {
    return static_cast<const std::byte*>(o_.x.data) + (row * o_.x.stride + col) * element_bytes_;
  }

  // Computes the scales and codes of a panel, strip by strip. If the next panel begins before
  // column `end`, it is prefetched.
  void by_strips(std::int64_t b, std::int64_t col, bool cold, std::int64_t end,
                 const WorkerScratch& scratch) const {
    const std::int64_t row = b * block_rows_;
    const std::int64_t rows = end_row(b) - row;
    const MatrixView<std::int8_t>& q_t = o_.q_t.codes;
    StripJob job;
    job.x = {at(row, col), o_.x.dtype, rows, end_col(col) - col, o_.x.stride};
    job.q_t = {q_t.data + col * q_t.stride + row, job.x.cols, rows, q_t.stride};
    job.absmax = o_.q_t.absmax.data() + b * cols_ + col;
    job.stream = config_.stream;
    job.cold = cold;
    if (col + panel_ < end) {
      job.next = at(row, col + panel_);
      job.next_cols = end_col(col + panel_) - (col + panel_);
    }
    strips_(job, reinterpret_cast<std::byte*>(scratch.tile));
    fill_rows(job.q_t, (rows + strip_rows - 1) / strip_rows * strip_rows);
  }

  // Sets a block's codes to zero from row `from` of the block on.
  void fill_rows(const MatrixView<std::int8_t>& q_t, std::int64_t from) const {
    if (from >= block_rows_) return;
    for (std::int64_t c = 0; c < q_t.rows; ++c)
      std::memset(q_t.data + c * q_t.stride + from, 0,
                  static_cast<std::size_t>(block_rows_ - from));
  }

  // Computes the scales and codes of a panel from the largest magnitudes of its columns. Meanwhile
  // prefetches the panel to its right, if that is next.
  void codes(std::int64_t b, std::int64_t col, bool asks_ahead, std::byte* magnitudes,
             const WorkerScratch& scratch) const {
    const std::int64_t row = b * block_rows_;
    const std::int64_t rows = end_row(b) - row;
    const std::int64_t cols = end_col(col) - col;
    finish_columns({magnitudes, 0, 1, o_.x.dtype}, 0, cols, o_.q_t.absmax.data() + b * cols_ + col,
                   scratch.scales);
    const MatrixView<std::int8_t>& q_t = o_.q_t.codes;
    std::int8_t* const to = q_t.data + col * q_t.stride + row;
    const ConstAnyMatrix x = {at(row, col), o_.x.dtype, rows, cols, o_.x.stride};
    if (o_.stochastic) {
      stochastic_columns_kernel(state_.features)(
          {x, row, col, scratch.scales.divisor, {to, cols, rows, q_t.stride}}, *o_.stochastic);
    } else {
      TileJob job;
      job.x = x;
      job.q_t = {to, cols, rows, q_t.stride};
      job.by_column = true;
      job.columns = scratch.scales;
      job.stream = config_.stream;
      job.tile_rows = config_.tile_rows;
      if (asks_ahead) job.next = static_cast<const std::byte*>(x.data) + panel_ * element_bytes_;
      tile_kernel(state_.features)(job, {0, rows, 0, cols}, scratch.tile);
    }
    fill_rows({to, cols, rows, q_t.stride}, rows);
  }

  ContextState& state_;
  const Config& config_;
  const Request& o_;
  const std::int64_t cols_;
  const std::int64_t block_rows_;
  const std::int64_t blocks_;
  const std::int64_t panel_;
  const std::int64_t element_bytes_;
  const StripKernel strips_;  // null: codes are computed tile by tile
  core::Workspace::Frame frame_;

  std::int64_t magnitude_bytes_ = 0;
  core::PerWorker<std::byte> magnitudes_;
  core::PerWorker<std::int8_t> tiles_;
  ColumnScales scales_;
};

}  // namespace

void blockwise(ContextState& state, const Config& config, const Request& o) {
  if (!o.column_scales.empty()) {
    const OpParts& scaled = parts_of(Op::rowwise_scaled);
    return core::all_or_nothing(state, [&] {
      rowwise_scaled(state, config, done_by(scaled, o));
      blockwise(state, config, left_by(scaled, o));
    });
  }
  SWITCHBACK_ASSERT(is_block_rows(o.q_t.block_rows));
  SWITCHBACK_ASSERT(config.panel_cols > 0 && config.panel_cols % 64 == 0);
  SWITCHBACK_ASSERT(config.tile_rows > 0 && config.tile_rows % 64 == 0);
  BlockwiseRun(state, config, o)();
}

}  // namespace switchback::quant::cpu
