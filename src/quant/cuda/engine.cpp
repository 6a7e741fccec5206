// SPDX-License-Identifier: Apache-2.0
#include "quant/device_engine.hpp"

#include <span>

#include "core/context_state.hpp"
#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "quant/cuda/kernels.hpp"
#include "switchback/quant.hpp"

namespace switchback::quant::cuda {

namespace {

static_assert(sum_block_rows == column_sum_block_rows);

using core::cuda::check;
using Frame = core::Workspace::Frame;

class Run {
 public:
  Run(ContextState& state, const Problem& problem, const Launch& launch, const Request& request)
      : frame_(state.workspace),
        is_dry_run_(state.runtime->is_dry_run()),
        problem_(problem),
        launch_(launch),
        o_(request),
        matrices_(request.matrices.count) {}

  void operator()() {
    switch (problem_.op) {
      case Op::rowwise:
        return rowwise(o_.x);
      case Op::rowwise_column_sums:
        return rowwise_column_sums();
      case Op::column_sums:
        return column_sums(o_.x);
      case Op::global:
      case Op::global_transpose:
      case Op::global_and_transpose:
        return global();
      case Op::columnwise_transpose:
      case Op::rowwise_and_columnwise_transpose:
      case Op::blockwise_transpose:
      case Op::rowwise_and_blockwise_transpose:
        return columnwise();
      case Op::blockwise_stochastic:
        return blocks_stochastic();
      case Op::dequantize_rowwise:
        if (!empty()) queue(launch_dequantize, o_.x, o_.absmax_x.data(), o_.value);
        return;
      case Op::cast_to_int8:
        if (!empty()) queue(launch_cast, o_.x, o_.q.codes);
        return;
      case Op::activation_forward:
      case Op::activation_backward:
        if (!empty()) activate(o_.value, activation_list(o_.value));
        return;
      case Op::activation_forward_quantize:
      case Op::activation_backward_quantize:
        return activation_quantize();
      case Op::rotate:
        if (!empty()) queue(launch_rotate, o_.x, o_.rotation, o_.rotated);
        return;
      case Op::rotate_quantize:
      case Op::activation_rotate_quantize:
        return rotate_quantize();
      case Op::rowwise_stochastic:
        if (empty()) return zero(o_.q.absmax);
        return queue(launch_rowwise_stochastic, o_.x, column_scales(), *o_.stochastic, o_.q.codes,
                     o_.q.absmax.data());
      case Op::rowwise_scaled:
        return rowwise_scaled();
    }
  }

 private:
  [[nodiscard]] bool empty() const { return problem_.rows == 0 || problem_.cols == 0; }

  /// Calls a launcher, unless this is a dry run.
  template <class... Parameters, class... Arguments>
  void queue(cudaError_t (*launcher)(const Launch&, Parameters...),
             const Arguments&... arguments) const {
    if (is_dry_run_) return;
    check(launcher(launch_, arguments...), "a kernel", "{}", problem_);
  }

  /// Calls a cooperative launcher, unless this is a dry run. Returns false if it does not suit the
  /// matrix, or finds no room on the device at this time.
  template <class... Parameters, class... Arguments>
  [[nodiscard]] bool queued_cooperatively(cudaError_t (*launcher)(const Launch&, Parameters...),
                                          const Arguments&... arguments) const {
    if (!transposes_cooperatively(launch_, o_.x, o_.q.codes, o_.q_t.codes)) return false;
    if (is_dry_run_) return true;
    const cudaError_t status = launcher(launch_, arguments...);
    if (status == cudaErrorCooperativeLaunchTooLarge) {
      (void)cudaGetLastError();
      return false;
    }
    check(status, "a kernel", "{}", problem_);
    return true;
  }

  /// Writes zeros to the scales of an empty matrix, or of rows without codes: there is nothing to
  /// read.
  void zero(std::span<float> values) const {
    if (values.empty() || is_dry_run_) return;
    check(cudaMemsetAsync(values.data(), 0, values.size_bytes(), launch_.stream),
          "cudaMemsetAsync");
  }

  unsigned* rowwise_scratch() {
    // Rows are split only if there is a single matrix: several matrices have enough rows.
    return matrices_ == 1 && rowwise_splits(launch_, problem_.rows, problem_.cols)
               ? frame_.take<unsigned>(problem_.rows)
               : nullptr;
  }

  void rowwise(ConstAnyMatrix x) {
    if (empty()) return zero(o_.q.absmax);
    unsigned* const row_bits = rowwise_scratch();
    queue(launch_rowwise, x, o_.q.codes, o_.q.absmax.data(), row_bits);
  }

  [[nodiscard]] std::int64_t sum_blocks() const {
    return (problem_.rows + sum_block_rows - 1) / sum_block_rows;
  }

  /// Scratch memory for the sums of blocks of rows; null if there are no blocks.
  float* sums_scratch() {
    return empty() ? nullptr : frame_.take<float>(sum_blocks() * problem_.cols);
  }

  void column_sums(ConstAnyMatrix x) { column_sums(x, sums_scratch()); }
  void column_sums(ConstAnyMatrix x, float* block_sums) {
    if (problem_.cols == 0) return;
    if (block_sums != nullptr) queue(launch_block_sums, x, block_sums);
    queue(launch_finish_sums, block_sums, block_sums == nullptr ? 0 : sum_blocks(), problem_.cols,
          o_.column_sums.data(), o_.accumulate);
  }

  void rowwise_column_sums() {
    float* const block_sums = sums_scratch();  // taken first: if it is refused, nothing was queued
    if (empty() || !rowwise_sums_together(launch_, o_.x, o_.q.codes)) {
      rowwise(o_.x);
      return column_sums(o_.x, block_sums);
    }
    queue(launch_rowwise_column_sums, o_.x, o_.q.codes, o_.q.absmax.data(), block_sums);
    queue(launch_finish_sums, block_sums, sum_blocks(), problem_.cols, o_.column_sums.data(),
          o_.accumulate);
  }

  [[nodiscard]] const float* column_scales() const {
    return o_.column_scales.empty() ? nullptr : o_.column_scales.data();
  }

  void scaled_rows() const {
    queue(launch_rowwise_scaled, o_.x, column_scales(), o_.q.codes, o_.q.absmax.data());
  }
  void rowwise_scaled() {
    const bool sums = !o_.column_sums.empty();
    float* const block_sums = sums ? sums_scratch() : nullptr;
    if (empty())
      zero(o_.q.absmax);
    else
      scaled_rows();
    if (sums) column_sums(o_.x, block_sums);
  }

  /// Scratch memory for a list of activations (gelu_list.cuh), with y as the result; null if no
  /// list is used.
  void* activation_list(AnyMatrix y) {
    return activation_wants_list(launch_, o_.g, o_.x, y)
               ? frame_.take<std::byte>(
                     static_cast<std::int64_t>(activation_list_bytes(o_.g.data != nullptr)))
               : nullptr;
  }
  void activate(AnyMatrix y, void* list) const {
    queue(launch_activation, o_.g, o_.x, o_.activation, y, list);
  }

  void activation_quantize() {
    const bool sums = !o_.column_sums.empty();
    float* const block_sums = sums ? sums_scratch() : nullptr;
    if (empty()) {
      zero(o_.q.absmax);
      if (sums) column_sums(o_.x, block_sums);
      return;
    }
    const bool together = activation_rowwise_together(o_.g, o_.x, o_.value, o_.q.codes);
    AnyMatrix v = o_.value;
    if (v.data == nullptr && (sums || !together)) v = scratch_matrix(o_.x.dtype);
    void* const list = activation_list(v);
    if (together) {
      queue(launch_activation_rowwise, o_.g, o_.x, o_.activation, v, o_.q.codes, o_.q.absmax.data(),
            list);
    } else {
      unsigned* const row_bits = rowwise_scratch();
      activate(v, list);
      queue(launch_rowwise, v, o_.q.codes, o_.q.absmax.data(), row_bits);
    }
    if (sums) column_sums(v, block_sums);
  }

  AnyMatrix scratch_matrix(DType dtype) {
    const auto bytes = static_cast<std::int64_t>(dtype_size_bytes(dtype));
    return {frame_.take<std::byte>(problem_.rows * problem_.cols * bytes), dtype, problem_.rows,
            problem_.cols, problem_.cols};
  }

  void rotate_quantize() {
    if (empty()) return zero(o_.q.absmax);
    const bool activates = o_.activation != Activation::none;
    const bool together = rotate_rowwise_together(o_.x);
    AnyMatrix activated = o_.value;
    if (activates && activated.data == nullptr) activated = scratch_matrix(o_.x.dtype);
    const AnyMatrix rotated = together ? AnyMatrix() : scratch_matrix(DType::f32);
    unsigned* const row_bits = together ? nullptr : rowwise_scratch();
    void* const list = activates ? activation_list(activated) : nullptr;
    if (activates) activate(activated, list);
    const ConstAnyMatrix v = activates ? ConstAnyMatrix(activated) : o_.x;
    if (rotate_rowwise_by_lanes(launch_, v, o_.q.codes))
      return queue(launch_rotate_rowwise_by_lanes, v, o_.rotation, o_.q.codes, o_.q.absmax.data());
    if (together)
      return queue(launch_rotate_rowwise, v, o_.rotation, o_.q.codes, o_.q.absmax.data());
    queue(launch_rotate, v, o_.rotation, rotated);
    queue(launch_rowwise, rotated, o_.q.codes, o_.q.absmax.data(), row_bits);
  }

  void global() {
    const bool transposes = parts_of(problem_.op).transposes();
    const std::span<float> absmax = transposes ? o_.q_t.absmax : o_.q.absmax;
    if (empty()) return zero(absmax);
    unsigned* const bits = frame_.take<unsigned>(matrices_);
    if (transposes && queued_cooperatively(launch_global_transpose_cooperative, o_.x, o_.q.codes,
                                           o_.q_t.codes, bits, absmax.data()))
      return;
    queue(launch_absmax, o_.x, bits, false);
    if (transposes)
      queue(launch_global_transpose, o_.x, o_.q.codes, o_.q_t.codes, bits, absmax.data());
    else
      queue(launch_codes, o_.x, o_.q.codes, bits, false, absmax.data());
  }

  void columnwise() {
    const bool sums = !o_.column_sums.empty();
    float* const block_sums = sums ? sums_scratch() : nullptr;
    if (empty()) {
      zero(o_.q.absmax);
      zero(o_.q_t.absmax);
      if (sums) column_sums(o_.x, block_sums);
      return;
    }
    const bool rows_too = parts_of(problem_.op).q == Scales::per_row;
    const std::int64_t block_rows = o_.q_t.block_rows;
    if (block_rows != 0 && blocks_together(launch_, o_.x, block_rows)) {
      blocks(rows_too);
    } else if (rows_too && column_scales() != nullptr) {
      scaled_rows();
      columns(false);
    } else {
      columns(rows_too);
    }
    if (sums) column_sums(o_.x, block_sums);
  }

  void blocks(bool rows_too) {
    const std::int64_t block_rows = o_.q_t.block_rows;
    const bool together =
        rows_too && blocks_and_rows_together(o_.x, column_scales(), o_.q.codes, block_rows);
    if (rows_too && !together) column_scales() != nullptr ? scaled_rows() : rowwise(o_.x);
    queue(launch_blocks, o_.x, together ? column_scales() : nullptr,
          together ? o_.q.codes : Codes(), o_.q.absmax.data(), o_.q_t.codes, o_.q_t.absmax.data(),
          block_rows);
  }

  void columns(bool rows_too) {
    const std::int64_t block_rows = o_.q_t.block_rows;
    const std::int64_t scales =
        matrices_ * scale_count(o_.q_t.scales, problem_.rows, problem_.cols, block_rows);
    unsigned* const column_bits =
        frame_.take<unsigned>(scales + (rows_too ? matrices_ * problem_.rows : 0));
    unsigned* const row_bits = rows_too ? column_bits + scales : nullptr;
    if (block_rows == 0 && queued_cooperatively(launch_columnwise_transpose_cooperative, o_.x,
                                                o_.q.codes, o_.q.absmax.data(), row_bits,
                                                o_.q_t.codes, o_.q_t.absmax.data(), column_bits))
      return;
    queue(launch_absmax_columns, o_.x, block_rows, column_bits, row_bits);
    queue(launch_columnwise_transpose, o_.x, o_.q.codes, o_.q.absmax.data(), row_bits, o_.q_t.codes,
          o_.q_t.absmax.data(), block_rows, column_bits);
  }

  void blocks_stochastic() {
    if (empty()) return zero(o_.q_t.absmax);
    const std::int64_t block_rows = o_.q_t.block_rows;
    if (blocks_stochastic_together(o_.x, block_rows))
      return queue(launch_blocks_stochastic, o_.x, *o_.stochastic, o_.q_t.codes,
                   o_.q_t.absmax.data(), block_rows);
    unsigned* const column_bits = frame_.take<unsigned>(
        scale_count(Scales::per_block, problem_.rows, problem_.cols, block_rows));
    queue(launch_absmax_columns, o_.x, block_rows, column_bits, nullptr);
    queue(launch_blocks_stochastic_twice, o_.x, *o_.stochastic, o_.q_t.codes, o_.q_t.absmax.data(),
          block_rows, column_bits);
  }

  Frame frame_;
  const bool is_dry_run_;
  const Problem& problem_;
  const Launch& launch_;
  const Request& o_;
  const std::int64_t matrices_;
};

void run(ContextState& state, const Problem& problem, const Config& config,
         const Request& request) {
  core::cuda::Runtime& runtime = core::cuda::runtime(state);
  const core::cuda::CurrentDevice current(runtime.index());
  const Launch launch = {
      runtime.cuda_stream(),
      static_cast<int>(config.block_threads),
      runtime.info().multiprocessors,
      runtime.overlaps(),
      runtime.cooperates(),
      runtime.info().shared_bytes_per_block,
      runtime.info().l2_bytes,
      {request.matrices.count, request.matrices.step, request.q.step, request.q_t.step},
      request.changed};
  Run(state, problem, launch, request)();
}

}  // namespace

void ask_whether_changed(ContextState& state, ConstAnyMatrix w, const std::uint64_t (&seed)[2],
                         WeightProof* proof, unsigned codes) {
  core::cuda::Runtime& runtime = core::cuda::runtime(state);
  if (runtime.is_dry_run()) return;
  const core::cuda::CurrentDevice current(runtime.index());
  const Launch launch = {runtime.cuda_stream(), 0, runtime.info().multiprocessors, false, false, 0};
  check(launch_fingerprint(launch, w, seed, proof, codes), "kernel fingerprint");
}

const DeviceEngine* engine() noexcept {
  static constexpr DeviceEngine backend = {run, ask_whether_changed};
  return &backend;
}

}  // namespace switchback::quant::cuda
