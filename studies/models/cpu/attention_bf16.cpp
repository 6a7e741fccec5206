// SPDX-License-Identifier: Apache-2.0
#include "studies/models/cpu/attention_bf16.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "studies/models/cpu/ahead.hpp"

namespace switchback::models::bf16 {

namespace {

const std::uint16_t* elements_of(const ConstAnyMatrix& m, const models::Head& h,
                                 std::int64_t row = 0) {
  return static_cast<const std::uint16_t*>(m.data) + (h.first_row + row) * m.stride + h.column;
}
Rows rows_of(const ConstAnyMatrix& m, const models::Head& h) {
  return {elements_of(m, h), m.stride};
}
Results results_of(const AnyMatrix& m, const models::Head& h) {
  return {const_cast<std::uint16_t*>(elements_of(m, h)), m.stride,
          m.rows * m.cols * std::int64_t{sizeof(std::uint16_t)} > l2_bytes()};
}
Head head_of_task(const ConstAnyMatrix& qkv, const models::Head& h) {
  return {rows_of(qkv, h), h.width, h.length, h.dim, h.scale};
}
// Adds rows [begin, end) of a head to the rows to prefetch. Rows that do not fit into half of the
// second-level cache are ignored.
void add_ahead(Ahead& ahead, const ConstAnyMatrix& m, const models::Head& h, std::int64_t begin,
               std::int64_t end, std::int64_t part = 0) {
  std::int64_t rows = end - begin;
  for (int i = 0; i < ahead.count; ++i)
    rows += ahead.parts[i].rows;
  if (rows * h.dim * std::int64_t{sizeof(std::uint16_t)} > l2_bytes() / 2) return;
  ahead.parts[ahead.count++] = {elements_of(m, h, begin) + part * h.width, m.stride, end - begin};
}

// Measures the times of one attention task; its destructor adds them to those of all tasks.
class TaskTimes {
 public:
  explicit TaskTimes(AttentionTimes* sums) : sums_(sums) {}
  ~TaskTimes() {
    if (sums_ == nullptr) return;
    sums_->products_ns += times_.products_ns;
    sums_->softmax_ns += times_.softmax_ns;
  }
  TaskTimes(const TaskTimes&) = delete;
  TaskTimes& operator=(const TaskTimes&) = delete;
  Times* get() { return sums_ == nullptr ? nullptr : &times_; }

 private:
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               Profile::Clock::now().time_since_epoch())
        .count();
  }
  AttentionTimes* sums_;
  Times times_ = {.now = now, .products_ns = 0, .softmax_ns = 0};
};

std::int64_t floats_of(std::int64_t bytes) {
  return bytes / std::int64_t{sizeof(float)};
}

}  // namespace

const Kernels* kernels_for(const ContextState& state, DType dtype) {
  if (dtype != DType::bf16) return nullptr;
  const Kernels* kernels = state.features.amx_bf16 ? kernels_of_amx() : nullptr;
  if (kernels == nullptr && state.features.avx512_bf16) kernels = kernels_of_avx512();
  return kernels;
}

void attention(ContextState& state, const Kernels& kernels, const AttentionShape& shape,
               const ConstAnyMatrix& qkv, const AnyMatrix& out, float* logsumexp,
               AttentionTimes* times) {
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(
      frame, state.threads.count(), floats_of(kernels.forward_bytes(shape.length, shape.head_dim)));
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t tasks = heads * tasks_of_head(shape);
  state.threads.for_each(tasks, [&](std::int64_t i, int worker) {
    const Task task = task_of(shape, i);
    const Task next = task_of(shape, std::min(i + 1, tasks - 1));
    Forward f = {.head = head_of_task(qkv, task.head),
                 .begin = task.begin,
                 .end = task.end,
                 .out = results_of(out, task.head),
                 .logsumexp = logsumexp + i % heads * shape.length,
                 .ahead = {}};
    for (const std::int64_t part : {1, 2, 0})
      add_ahead(f.ahead, qkv, next.head, part == 0 ? next.begin : 0, next.end, part);
    TaskTimes spent(times);
    kernels.forward(f, scratch.of(worker), spent.get());
  });
}

void attention_backward(ContextState& state, const Kernels& kernels, const AttentionShape& shape,
                        const BackwardOperands& o, AttentionTimes* times) {
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(
      frame, state.threads.count(),
      floats_of(kernels.backward_bytes(shape.length, shape.head_dim)));
  const std::int64_t heads = shape.batch * shape.heads;
  state.threads.for_each(heads, [&](std::int64_t i, int worker) {
    const models::Head head = head_of(shape, i);
    const models::Head next = head_of(shape, std::min(i + 1, heads - 1));
    Backward b = {.head = head_of_task(o.qkv, head),
                  .out = rows_of(o.out, head),
                  .dout = rows_of(o.dout, head),
                  .logsumexp = o.logsumexp + i * shape.length,
                  .dqkv = results_of(o.dqkv, head),
                  .ahead = {}};
    for (const std::int64_t part : {0, 1, 2})
      add_ahead(b.ahead, o.qkv, next, 0, next.length, part);
    for (const ConstAnyMatrix& m : {o.dout, o.out})
      add_ahead(b.ahead, m, next, 0, next.length);
    TaskTimes spent(times);
    kernels.backward(b, scratch.of(worker), spent.get());
  });
}

}  // namespace switchback::models::bf16
