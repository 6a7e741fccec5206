// SPDX-License-Identifier: Apache-2.0
// Engine zone: one int8 product as the blocked engines compute it. It prepares the operands for a
// tile kernel, and loops over the tiles of a block of d. The caller divides d into blocks, for one
// product or for many.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/cpu/threads.hpp"
#include "gemm/int8/cpu/epilogue.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::gemm_int8 {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

/// A block size from its configured value. 0 means the whole; any other value is rounded to tiles.
constexpr std::int64_t block_size(std::int64_t configured, std::int64_t whole, std::int64_t tile) {
  if (configured == 0 || configured >= whole) return round_up(whole, tile);
  return round_up(configured, tile);
}

/// Divides `size` into equal blocks of whole tiles, none larger than `most`.
constexpr std::int64_t even_block(std::int64_t size, std::int64_t most, std::int64_t tile) {
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(size, most));
  return std::max(tile, ceil_div(ceil_div(size, blocks), tile) * tile);
}

/// Rounds a number of codes along k up to whole groups. The size of a group is a power of two.
inline std::int64_t whole_groups(const MicroKernel& kernel, std::int64_t codes) {
  return (codes + kernel.group - 1) & -std::int64_t{kernel.group};
}

/// Calls f(task, worker) for every task, on at most `threads` threads; 0 = all threads of the pool.
template <class F>
void for_tasks(core::Threads& pool, std::int64_t threads, std::int64_t tasks, F&& f) {
  if (threads == 0 || threads >= pool.count()) {
    pool.for_each(tasks, f);
    return;
  }
  std::atomic<std::int64_t> next{0};
  pool.for_each(threads, [&](std::int64_t worker, int) {
    for (std::int64_t task = next++; task < tasks; task = next++)
      f(task, static_cast<int>(worker));
  });
}

/// The smallest number of units (of rows_together rows of A each) whose preparation is worth waking
/// a thread for: 64 KiB of codes take about 1 µs to sum.
inline std::int64_t preparation_grain(const MicroKernel& kernel, std::int64_t k) {
  return std::max<std::int64_t>(1, (std::int64_t{64} << 10) / (k * kernel.rows_together));
}

/// Lets this thread compute tiles of the kernel as long as the object exists.
class TileScope {
 public:
  explicit TileScope(const MicroKernel& kernel) : kernel_(kernel) {
    if (kernel_.begin != nullptr) kernel_.begin();
  }
  ~TileScope() {
    if (kernel_.end != nullptr) kernel_.end();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const MicroKernel& kernel_;
};

/// Whether to store d with non-temporal stores: if the second-level caches of all threads would
/// hold at most half of it. Each of its lines would then be read from memory before it is written.
/// (Sapphire Rapids, two threads with 4 MiB: a dW of 8 MiB gains 8 % of a step's time, an output of
/// 6 MiB loses 4 % of its product's time. Zen 4, two threads with 2 MiB: a dW of 16 MiB with 256
/// rows takes 0.62 of the time.)
bool streams_output(bool can_stream, const core::Threads& threads, DType output, std::int64_t rows,
                    std::int64_t cols, std::int64_t stride_d, const void* d);

/// Rows and columns [begin, end) of d.
struct Block {
  std::int64_t row_begin, row_end, col_begin, col_end;
};

/// The rows of a block cut into tiles of nearly equal height: 16 rows are 6 + 5 + 5, not 6 + 6 + 4.
/// If a kernel prepares pairs of rows, each tile begins with a pair.
struct RowTiles {
  std::int64_t rows;
  std::int64_t together;
  std::int64_t count;
  std::int64_t each;    ///< units of a tile; a unit is `together` rows
  std::int64_t larger;  ///< number of tiles that have one unit more
  RowTiles(std::int64_t rows_, std::int64_t most, std::int64_t together_)
      : rows(rows_), together(together_), count(ceil_div(rows_, most)) {
    const std::int64_t units = ceil_div(rows_, together_);
    each = count > 0 ? units / count : 0;
    larger = count > 0 ? units % count : 0;
  }
  [[nodiscard]] std::int64_t begin(std::int64_t tile) const {
    return std::min(rows, together * (tile * each + std::min(tile, larger)));
  }
  [[nodiscard]] int size(std::int64_t tile) const {
    return static_cast<int>(begin(tile + 1) - begin(tile));
  }
};

/// How the rows of A are prepared, once for all columns of d.
struct RowPreparation {
  /// Size of the copy of one row of A; 0 if tiles read the caller's rows.
  std::int64_t copy_bytes = 0;
  bool interleaved = false;  ///< the copy has the kernel's layout; otherwise it has plain rows

  /// `packed` says whether B will be read in panels.
  RowPreparation(const MicroKernel& kernel, const GemmProblem& problem, bool packed);

  /// Prepares rows [begin, end). Both are multiples of kernel.rows_together, except that end may be
  /// m. `copy` and `start` are the addresses for row 0.
  void prepare(const MicroKernel& kernel, const GemmProblem& problem, const std::int8_t* a,
               std::int64_t begin, std::int64_t end, std::int8_t* copy, std::int32_t* start) const;
};

struct BlockedProduct {
  const MicroKernel& kernel;
  const GemmProblem& p;
  const GemmOperands& o;
  std::int64_t kc = 0;                  ///< codes in a piece of k
  std::int64_t padded_k = 0;            ///< k rounded up to whole groups
  const std::int8_t* panels = nullptr;  ///< packed B, or null to read B in place
  EpilogueScales scales = {};
  bool streams = false;  ///< whether d is written with non-temporal stores
  // Where tiles read the rows of A if B is packed, and the start values of all rows' sums.
  const std::int8_t* a = nullptr;
  std::int64_t a_row_bytes = 0;
  std::int64_t a_code_bytes = 1;
  const std::int32_t* start = nullptr;  ///< [m]

  /// Makes the product read the prepared rows of A; `copy` and `start_` are the addresses for row
  /// 0.
  void use(const RowPreparation& rows, const std::int8_t* copy, const std::int32_t* start_);

  /// The number of int32 values that block() needs as scratch memory, for blocks of at most `rows`
  /// by `cols` elements of d.
  [[nodiscard]] std::int64_t sums_size(std::int64_t rows, std::int64_t cols) const;

  /// Computes a block of d. With packed B it must begin at a whole panel. `next_col` is the column
  /// of the same B that this worker probably computes next.
  void block(const Block& block, std::int64_t next_col, std::int32_t* sums) const;

 private:
  [[nodiscard]] const void* a_at(std::int64_t row, std::int64_t code) const {
    return a + row * a_row_bytes + code * a_code_bytes;
  }
  [[nodiscard]] const std::int8_t* panel_at(std::int64_t col, std::int64_t code) const {
    return panels + col * padded_k + code * kernel.strip_cols;
  }
  [[nodiscard]] std::int64_t strip_bytes() const { return kernel.strip_cols * padded_k; }
  [[nodiscard]] std::int64_t fetched_bytes(std::int64_t codes, std::int64_t lines) const;
  [[nodiscard]] Part part(std::int64_t row, int rows, std::int64_t col, std::int64_t cols) const {
    return {row, col, rows, cols < p.n - col ? cols : p.n - col};
  }
  void packed_block(const Block& block, std::int64_t next_col, std::int32_t* sums) const;
  void narrow_block(const Block& block, std::int32_t* sums) const;
  void plain_block(const Block& block, std::int32_t* sums) const;
};

}  // namespace switchback::gemm_int8
