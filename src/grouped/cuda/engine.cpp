// SPDX-License-Identifier: Apache-2.0
#include "grouped/device_engine.hpp"

#include "core/context_state.hpp"
#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "grouped/cuda/kernels.hpp"

namespace switchback::grouped::cuda {

namespace {

using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::group_arrays;
using core::cuda::Runtime;
using core::cuda::runtime;

GroupArrays arrays_of(const ContextState& state, const Groups& groups, std::int64_t slots) {
  return group_arrays(groups, slots, runtime(state).reports());
}

// Queues the kernels that `start` launches, unless this is a dry run.
template <class Start>
void queue(const ContextState& state, std::string_view kernel, const Start& start) {
  Runtime& device = runtime(state);
  if (device.is_dry_run()) return;
  const CurrentDevice current(device.index());
  check(start(Launch{device.cuda_stream(), 0, device.info().multiprocessors, false, false, 0}),
        kernel);
}

SlotRows slot_rows(const ContextState& state, const Groups& groups, const GroupedRows& x,
                   std::int64_t slots) {
  return {arrays_of(state, groups, slots), x.index.empty() ? nullptr : x.index.data(), x.data.rows,
          x.data.stride, x.column_stride};
}

void quantize_rowwise(ContextState& state, const Groups& groups, const GroupedRows& x,
                      MatrixView<std::int8_t> q, std::span<float> absmax) {
  if (q.rows == 0) return;
  const SlotRows rows = slot_rows(state, groups, x, q.rows);
  queue(state, "kernel grouped_quantize_rowwise", [&](const Launch& launch) {
    return launch_quantize(launch, rows, x.data, q, absmax.data());
  });
}

void quantize_scaled(ContextState& state, const Groups& groups, const GroupedRows& x,
                     const float* column_scales, MatrixView<std::int8_t> q,
                     std::span<float> absmax) {
  if (q.rows == 0) return;
  const SlotRows rows = slot_rows(state, groups, x, q.rows);
  queue(state, "kernel grouped_quantize_scaled", [&](const Launch& launch) {
    return launch_quantize_scaled(launch, rows, x.data, column_scales, q, absmax.data());
  });
}

void gather(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to) {
  if (to.rows == 0 || to.cols == 0) return;
  const SlotRows rows = slot_rows(state, groups, x, to.rows);
  queue(state, "kernel grouped_gather",
        [&](const Launch& launch) { return launch_gather(launch, rows, x.data, to); });
}

void combine(ContextState& state, const CombineArgs& args) {
  Report* const reports = runtime(state).reports();
  queue(state, "kernel combine", [&](const Launch& launch) {
    return launch_combine(launch, args.y, args.slots, args.weights, args.out, reports);
  });
}

void column_sums(ContextState& state, const Groups& groups, ConstAnyMatrix x, float* sums,
                 bool accumulate) {
  if (groups.count == 0 || x.cols == 0) return;
  const GroupArrays arrays = arrays_of(state, groups, x.rows);
  core::Workspace::Frame frame(state.workspace);
  auto* const block_sums = frame.take<float>(row_blocks(arrays, sum_block_rows) * x.cols);
  if (x.rows > 0)
    queue(state, "kernel grouped_column_sums",
          [&](const Launch& launch) { return launch_block_sums(launch, arrays, x, block_sums); });
  queue(state, "kernel grouped_finish_column_sums", [&](const Launch& launch) {
    return launch_finish_sums(launch, arrays, block_sums, x.cols, sums, accumulate);
  });
}

void find_blocks(ContextState& state, const Groups& groups, std::int64_t slots,
                 std::int64_t block_rows, std::int64_t blocks, BlockGroup* found) {
  if (groups.count == 0) return;
  const GroupArrays arrays = arrays_of(state, groups, slots);
  queue(state, "kernel grouped_find_blocks", [&](const Launch& launch) {
    return launch_find_blocks(launch, arrays, block_rows, blocks, found);
  });
}

void copy_to_blocks(ContextState& state, const Groups& groups, const GroupedRows& x,
                    std::int64_t slots, const BlockLayout& layout, AnyMatrix to) {
  if (to.rows == 0 || to.cols == 0) return;
  const SlotRows rows = slot_rows(state, groups, x, slots);
  queue(state, "kernel grouped_copy_to_blocks", [&](const Launch& launch) {
    return launch_copy_to_blocks(launch, rows, x.data, layout.groups.data(), layout.block_rows, to);
  });
}

void multiply_standard(ContextState& state, const GroupedStandardGemmArgs& args) {
  if (!args.engine.empty())
    core::fail(Status::unsupported,
               "grouped_gemm_standard: engine = '{}'; on a device it must be empty, because there "
               "is only one engine",
               args.engine);
  if (args.d.rows == 0 || args.d.cols == 0) return;
  const GroupArrays arrays = arrays_of(state, args.groups, args.a.rows);
  queue(state, "kernel grouped_standard", [&](const Launch& launch) {
    return launch_standard(launch, arrays,
                           {args.a, args.b, args.d, args.transpose_a, args.transpose_b,
                            args.accumulate, args.b_column_stride, args.bias});
  });
}

void weigh_fragments(ContextState& state, const Fragments& fragments, float* weights) {
  if (fragments.x.rows == 0) return;
  queue(state, "kernel fragment_softmax",
        [&](const Launch& launch) { return launch_weigh(launch, fragments, weights); });
}

void choose_fragments(ContextState& state, const Fragments& fragments, const FragmentOrder& order) {
  core::Workspace::Frame frame(state.workspace);
  auto* const logits = frame.take<float>(fragments.x.rows * fragments.count());
  queue(state, "kernel choose_fragments",
        [&](const Launch& launch) { return launch_choose(launch, fragments, logits, order); });
}

void pair_slots(ContextState& state, std::int64_t rows, std::int32_t* slots) {
  if (rows == 0) return;
  queue(state, "kernel pair_slots",
        [&](const Launch& launch) { return launch_pairs(launch, rows, slots); });
}

void split_softly(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                  const float* weights, AnyMatrix selected, AnyMatrix rest) {
  if (x.rows == 0) return;
  queue(state, "kernel split_fragments", [&](const Launch& launch) {
    return launch_split(launch, x, fragments, weights, nullptr, selected, rest);
  });
}

void without_chosen(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                    const std::int32_t* chosen, AnyMatrix rest) {
  if (x.rows == 0) return;
  queue(state, "kernel split_fragments", [&](const Launch& launch) {
    return launch_split(launch, x, fragments, nullptr, chosen, {}, rest);
  });
}

void fragment_gradients(ContextState& state, const FragmentGradients& args) {
  core::Workspace::Frame frame(state.workspace);
  const Fragments& fragments = args.fragments;
  const std::int64_t cols = fragments.x.cols;
  auto* const d_logits = frame.take<float>(fragments.x.rows * fragments.count());
  float* sums = nullptr;
  if (args.d_selector.data != nullptr) sums = frame.take<float>(cols);
  queue(state, "kernel fragment_gradients",
        [&](const Launch& launch) { return launch_gradients(launch, args, d_logits, sums); });
  const std::int64_t each = fragments.each();
  if (sums != nullptr)
    state.runtime->convert({sums, DType::f32, fragments.count(), each, each}, args.d_selector,
                           args.accumulate);
}

}  // namespace

const DeviceEngine* engine() noexcept {
  static constexpr DeviceEngine backend = {
      .quantize_rowwise = quantize_rowwise,
      .quantize_scaled = quantize_scaled,
      .gather = gather,
      .combine = combine,
      .column_sums = column_sums,
      .find_blocks = find_blocks,
      .copy_to_blocks = copy_to_blocks,
      .multiply_standard = multiply_standard,
      .weigh_fragments = weigh_fragments,
      .choose_fragments = choose_fragments,
      .pair_slots = pair_slots,
      .split_softly = split_softly,
      .without_chosen = without_chosen,
      .fragment_gradients = fragment_gradients,
  };
  return &backend;
}

}  // namespace switchback::grouped::cuda
