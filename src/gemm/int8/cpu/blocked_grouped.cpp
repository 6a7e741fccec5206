// SPDX-License-Identifier: Apache-2.0
// The blocked product of many groups. The blocks of all groups are tasks of one list, so threads
// wait for each other only twice, however many groups there are.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/assert.hpp"
#include "core/per_worker.hpp"
#include "gemm/int8/cpu/blocked.hpp"
#include "gemm/int8/cpu/blocked_product.hpp"

namespace switchback::gemm_int8 {

namespace {

// The rows of one group, and where the group's parts begin among the parts of all groups.
struct Group {
  std::int64_t index = 0;  // the group's position in the caller's order
  std::int64_t rows = 0;
  std::int64_t row_blocks = 0;
  std::int64_t block_rows = 0;
  std::int64_t prepared = 0;  // the group's first row in copies_, start_ and scale_a_
  std::int64_t chunk = 0;     // the group's first chunk (of rows to prepare)
  std::int64_t task = 0;      // the group's first task (a block of d)
};

// Finds the group that a chunk or a task belongs to, by the first chunk or task of each group.
const Group& group_of(std::span<const Group> groups, std::int64_t Group::*first,
                      std::int64_t number) {
  const auto next = std::upper_bound(
      groups.begin(), groups.end(), number,
      [first](std::int64_t wanted, const Group& group) { return wanted < group.*first; });
  return *(next - 1);
}

class GroupedRun {
 public:
  GroupedRun(const MicroKernel& kernel, const GemmProblem& problem, const GemmConfig& config,
             const GemmOperands& operands)
      : kernel_(kernel), p_(problem), config_(config), o_(operands) {}

  void run(ContextState& state);

 private:
  [[nodiscard]] bool packs_here() const {
    return o_.packed_b == nullptr && config_.weights == Weights::packed;
  }
  [[nodiscard]] bool in_panels() const { return o_.packed_b != nullptr || packs_here(); }
  [[nodiscard]] GroupRows rows_of(const Group& group) const {
    return o_.rows[static_cast<std::size_t>(group.index)];
  }

  std::span<const Group> list_groups(core::Workspace::Frame& frame);
  void take_memory(core::Workspace::Frame& frame, const Group& largest, int workers);
  void prepare_chunk(std::int64_t chunk) const;
  void pack_panel(std::int64_t number) const;
  void fill_scales(const Group& group, const GemmOperands& one) const;
  void block(std::int64_t task, int worker) const;
  template <class F>
  void with_product(const Group& group, F&& f) const;

  const MicroKernel& kernel_;
  const GemmProblem& p_;
  const GemmConfig& config_;
  const GemmOperands& o_;

  std::span<const Group> groups_;  // the groups that have rows, the largest first
  std::int64_t prepared_rows_ = 0;
  std::int64_t chunks_ = 0;
  std::int64_t tasks_ = 0;
  std::int64_t grain_ = 1;  // rows of A that one chunk prepares
  std::int64_t block_cols_ = 0;
  std::int64_t col_blocks_ = 0;
  std::int64_t panels_ = 0;  // panels of one group's B
  std::int64_t padded_n_ = 0;
  std::int64_t copy_bytes_ = 0;  // size of the copy of a row of A

  std::int8_t* packed_ = nullptr;  // B if packed in this call, [groups with rows]
  std::int8_t* copies_ = nullptr;
  std::int32_t* start_ = nullptr;
  core::PerWorker<std::int32_t> sums_;
  float* scale_a_ = nullptr;  // scales of A's rows, [prepared rows]
  float* scale_b_ = nullptr;  // scales of B, [groups with rows][padded n]
  float* bias_ = nullptr;     // bias, [groups with rows][padded n]
};

std::span<const Group> GroupedRun::list_groups(core::Workspace::Frame& frame) {
  auto* const groups = frame.take<Group>(p_.groups);
  std::int64_t count = 0;
  for (std::int64_t g = 0; g < p_.groups; ++g) {
    const std::int64_t rows = o_.rows[static_cast<std::size_t>(g)].rows;
    if (rows > 0) groups[count++] = {.index = g, .rows = rows};
  }
  std::sort(groups, groups + count, [](const Group& a, const Group& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.index < b.index;
  });
  const std::int64_t together = kernel_.rows_together;
  for (Group& group : std::span(groups, static_cast<std::size_t>(count))) {
    // Divides the group's rows into blocks of nearly equal height.
    const std::int64_t most = block_size(config_.mc, group.rows, kernel_.rows);
    group.row_blocks = ceil_div(group.rows, most);
    group.block_rows = round_up(ceil_div(group.rows, group.row_blocks), kernel_.rows);
    group.prepared = prepared_rows_;
    group.chunk = chunks_;
    group.task = tasks_;
    prepared_rows_ += round_up(group.rows, together);
    chunks_ += ceil_div(group.rows, grain_);
    tasks_ += group.row_blocks * col_blocks_;
    const RowPreparation rows(kernel_, problem_of(p_, rows_of(group)), in_panels());
    copy_bytes_ = std::max(copy_bytes_, rows.copy_bytes);
  }
  return {groups, static_cast<std::size_t>(count)};
}

void GroupedRun::take_memory(core::Workspace::Frame& frame, const Group& largest, int workers) {
  const auto used = static_cast<std::int64_t>(groups_.size());
  start_ = frame.take<std::int32_t>(prepared_rows_);
  if (copy_bytes_ > 0) copies_ = frame.take<std::int8_t>(prepared_rows_ * copy_bytes_);
  if (packs_here()) packed_ = frame.take<std::int8_t>(used * p_.packed_step_bytes);
  if (p_.scale != ScaleMode::none) {
    scale_a_ = frame.take<float>(prepared_rows_);
    scale_b_ = frame.take<float>(used * padded_n_);
    bias_ = frame.take<float>(used * padded_n_);
  }
  with_product(largest, [&](const BlockedProduct& product) {
    // Every worker has memory for sums: the last worker may run a task even if there are few tasks.
    sums_ = {frame, workers,
             product.sums_size(block_size(config_.mc, largest.rows, kernel_.rows), block_cols_)};
  });
}

// Calls f with the BlockedProduct of one group.
template <class F>
void GroupedRun::with_product(const Group& group, F&& f) const {
  const GroupRows slots = rows_of(group);
  const GemmProblem problem = problem_of(p_, slots);
  const GemmOperands operands = operands_of(p_, o_, group.index);
  const std::int64_t place = &group - groups_.data();
  BlockedProduct product{.kernel = kernel_,
                         .p = problem,
                         .o = operands,
                         .kc = block_size(config_.kc, problem.k, kernel_.group),
                         .padded_k = whole_groups(kernel_, problem.k)};
  if (packed_ != nullptr)
    product.panels = packed_ + place * p_.packed_step_bytes;
  else
    product.panels = static_cast<const std::int8_t*>(operands.packed_b);
  if (scale_a_ != nullptr)
    product.scales = {scale_a_ + group.prepared, scale_b_ + place * padded_n_,
                      bias_ + place * padded_n_};
  product.use(RowPreparation(kernel_, problem, product.panels != nullptr),
              copies_ + group.prepared * copy_bytes_, start_ + group.prepared);
  f(product);
}

void GroupedRun::fill_scales(const Group& group, const GemmOperands& one) const {
  const std::int64_t place = &group - groups_.data();
  fill_column_scales(problem_of(p_, rows_of(group)), one, scale_b_ + place * padded_n_,
                     bias_ + place * padded_n_);
}

void GroupedRun::prepare_chunk(std::int64_t chunk) const {
  const Group& group = group_of(groups_, &Group::chunk, chunk);
  const std::int64_t begin = (chunk - group.chunk) * grain_;
  const std::int64_t end = std::min(begin + grain_, group.rows);
  const GemmProblem problem = problem_of(p_, rows_of(group));
  const GemmOperands operands = operands_of(p_, o_, group.index);
  const RowPreparation rows(kernel_, problem, in_panels());
  rows.prepare(kernel_, problem, operands.a, begin, end, copies_ + group.prepared * copy_bytes_,
               start_ + group.prepared);
  if (scale_a_ == nullptr) return;
  std::memcpy(scale_a_ + group.prepared + begin, operands.absmax_a + begin,
              static_cast<std::size_t>(end - begin) * sizeof(float));
  if (begin == 0) fill_scales(group, operands);
}

void GroupedRun::pack_panel(std::int64_t number) const {
  const std::int64_t place = number / panels_;
  const std::int64_t panel = number % panels_;
  const GemmProblem& p = p_;
  const std::int64_t row = panel * kernel_.cols;
  const std::int8_t* b =
      operands_of(p_, o_, groups_[static_cast<std::size_t>(place)].index).b + row * p.stride_b;
  blocked_pack_rows(
      kernel_, p.k,
      {.row = row, .codes = {b, std::min<std::int64_t>(kernel_.cols, p.n - row), p.k, p.stride_b}},
      packed_ + place * p_.packed_step_bytes, Stores::cached);
}

void GroupedRun::block(std::int64_t task, int worker) const {
  const Group& group = group_of(groups_, &Group::task, task);
  const std::int64_t number = task - group.task;
  const std::int64_t row = number % group.row_blocks * group.block_rows;
  const std::int64_t col = number / group.row_blocks * block_cols_;
  const std::int64_t next = std::min(number + 1, group.row_blocks * col_blocks_ - 1);
  with_product(group, [&](const BlockedProduct& product) {
    product.block({row, std::min(row + group.block_rows, group.rows), col,
                   std::min(col + block_cols_, product.p.n)},
                  next / group.row_blocks * block_cols_, sums_.of(worker));
  });
}

void GroupedRun::run(ContextState& state) {
  const GemmProblem& p = p_;
  core::Workspace::Frame frame(state.workspace);
  grain_ = preparation_grain(kernel_, p.k) * kernel_.rows_together;
  block_cols_ = block_size(config_.nc, p.n, kernel_.cols);
  col_blocks_ = ceil_div(p.n, block_cols_);
  panels_ = ceil_div(p.n, kernel_.cols);
  padded_n_ = padded_columns(p.n);
  groups_ = list_groups(frame);
  if (groups_.empty()) return;
  take_memory(frame, groups_.front(), state.threads.count());
  // All memory is taken: nothing can fail after this point.
  const std::int64_t packs = packs_here() ? static_cast<std::int64_t>(groups_.size()) * panels_ : 0;
  state.threads.for_each(packs + chunks_, [&](std::int64_t number, int) {
    if (number < packs)
      pack_panel(number);
    else
      prepare_chunk(number - packs);
  });
  for_tasks(state.threads, config_.threads, tasks_,
            [&](std::int64_t task, int worker) { block(task, worker); });
}

}  // namespace

void blocked_run_groups(const MicroKernel& kernel, ContextState& state, const GemmProblem& p,
                        const GemmConfig& config, const GemmOperands& o) {
  SWITCHBACK_ASSERT(p.groups > 0 && p.n > 0 && p.k > 0);
  SWITCHBACK_ASSERT((p.packed_for == EngineId::none) == (o.packed_b == nullptr));
  GroupedRun(kernel, p, config, o).run(state);
}

}  // namespace switchback::gemm_int8
