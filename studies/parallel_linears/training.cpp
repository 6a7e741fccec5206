// SPDX-License-Identifier: Apache-2.0
#include "studies/parallel_linears/training.hpp"

#include <algorithm>
#include <cstring>

#include "core/context_state.hpp"
#include "core/device.hpp"
#include "measure/data.hpp"
#include "studies/common/training.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

constexpr std::int64_t task_elements = 16384;

template <class Visit>
void for_elements(Context& context, std::size_t count, const Visit& visit) {
  context.state().threads.for_ranges(static_cast<std::int64_t>(count), task_elements,
                                     [&](std::int64_t begin, std::int64_t end, int) {
                                       for (auto i = static_cast<std::size_t>(begin);
                                            i < static_cast<std::size_t>(end); ++i)
                                         visit(i);
                                     });
}

}  // namespace

void fill_zero(Context& context, const Matrix& m) {
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr)
    return runtime->fill(m.data(), 0, m.size_bytes());
  std::fill(m.floats().begin(), m.floats().end(), 0.0f);
}

Parameter::Parameter(Context& context, std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                     float scale, std::int64_t outputs)
    : context_(context),
      rows_(rows),
      cols_(cols),
      all_(context, DType::f32, (context.state().on_cpu() ? 3 : 5) * rows, cols) {
  const bool on_cpu = context.state().on_cpu();
  value_ = 0;
  momentum_ = 1;
  gradient_ = 2;
  fill_zero(context, all_);
  measure::fill_normal(context, value(), seed, scale);
  if (on_cpu) return;
  sums_.emplace_back(context, momentum, loss_scale(outputs));
  sums_.emplace_back(context, 1.0f, -learning_rate);
}

AnyMatrix Parameter::place(int which) const {
  return bench::rows_of(all_, which * rows_, rows_);
}

void Parameter::update() {
  if (!context_.state().on_cpu()) return update_on_device();
  float* const value = data(value_);
  float* const velocity = data(momentum_);
  const float* const gradient = data(gradient_);
  for_elements(context_, static_cast<std::size_t>(rows_ * cols_), [&](std::size_t i) {
    velocity[i] = momentum * velocity[i] + gradient[i];
    value[i] -= learning_rate * velocity[i];
  });
}

// The places are value, momentum, gradient, next momentum, next value: no output lies between two
// inputs, in this order and in the opposite one.
void Parameter::update_on_device() {
  const std::int64_t count = rows_ * cols_;
  const int next_momentum = 4 - momentum_;
  const int next_value = 4 - value_;
  sums_[0](context_, data(momentum_), data(gradient_), data(next_momentum), count);
  sums_[1](context_, data(value_), data(next_momentum), data(next_value), count);
  momentum_ = next_momentum;
  value_ = next_value;
}

void loss_gradient(Context& context, const Matrix& y, const Matrix& target, std::int64_t outputs,
                   const Matrix& g) {
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr) {
    runtime->convert(y.any(), g.any(), false);
    return runtime->convert(target.any(), g.any(), true);
  }
  mse_gradient(context.state(), y.floats(), target.floats(), outputs, g.floats());
}

StepData::StepData(Context& context, std::int64_t rows, std::int64_t cols, std::uint64_t seed,
                   int batches)
    : now_(context, DType::f32, rows, cols) {
  measure::fill_normal(context, now_.any(), seed);
  for (int i = 1; i < batches; ++i) {
    batches_.push_back(measure::host_copy(context, now_.any()));
    measure::fill_normal(context, now_.any(), seed + 1000u * static_cast<unsigned>(i));
  }
  if (batches > 1) batches_.push_back(measure::host_copy(context, now_.any()));
}

void StepData::load(Context& context, std::int64_t step) const {
  if (batches_.empty()) return;
  const Matrix& batch = batches_[static_cast<std::size_t>(step) % batches_.size()];
  const std::size_t bytes = now_.size_bytes();
  if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr)
    return runtime->copy(now_.data(), bytes, batch.data(), bytes, bytes, 1);
  std::memcpy(now_.data(), batch.data(), bytes);
}

}  // namespace switchback::bench
