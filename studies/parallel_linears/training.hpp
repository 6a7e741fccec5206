// SPDX-License-Identifier: Apache-2.0
// Bench: what independent models train with, beside their layers: data that changes from step to
// step, parameters with SGD, and the gradient of their loss; on the CPU and on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/matrix.hpp"
#include "studies/common/training.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

// SGD with momentum, as torch.optim.SGD computes it.
inline constexpr float learning_rate = 0.01f;
inline constexpr float momentum = 0.9f;

void fill_zero(Context& context, const measure::Matrix& m);

/// A parameter in f32 with its gradient and its momentum.
class Parameter {
 public:
  /// Random values of this standard deviation. `outputs` are those of loss_gradient().
  Parameter(Context& context, std::int64_t rows, std::int64_t cols, std::uint64_t seed, float scale,
            std::int64_t outputs);
  [[nodiscard]] AnyMatrix value() const { return place(value_); }
  [[nodiscard]] AnyMatrix gradient() const { return place(gradient_); }
  [[nodiscard]] std::size_t size_bytes() const {
    return static_cast<std::size_t>(rows_ * cols_) * sizeof(float);
  }
  /// On a device the value lies elsewhere afterwards.
  void update();

 private:
  [[nodiscard]] AnyMatrix place(int which) const;
  [[nodiscard]] float* data(int which) const { return static_cast<float*>(place(which).data); }
  void update_on_device();

  Context& context_;
  std::int64_t rows_, cols_;
  // Of the CPU: value, gradient, momentum. Of a device: value, momentum, gradient, and the places
  // of the next momentum and the next value, which take turns with the first.
  measure::Matrix all_;
  int value_ = 0;
  int momentum_ = 0;
  int gradient_ = 0;
  std::vector<WeightedSum> sums_;  ///< of a device: the momentum's, the value's
};

/// g = y - target, times loss_scale(outputs) on the CPU. On a device the parameters are to scale
/// it, and `target` holds negated targets.
void loss_gradient(Context& context, const measure::Matrix& y, const measure::Matrix& target,
                   std::int64_t outputs, const measure::Matrix& g);

/// A matrix of inputs or targets. New data each step are copied to it from the host's memory; they
/// are some batches in turns.
class StepData {
 public:
  /// With one batch the data stay as they are.
  StepData(Context& context, std::int64_t rows, std::int64_t cols, std::uint64_t seed, int batches);
  void load(Context& context, std::int64_t step) const;
  [[nodiscard]] const measure::Matrix& matrix() const noexcept { return now_; }

 private:
  measure::Matrix now_;
  std::vector<measure::Matrix> batches_;  ///< of the host
};

}  // namespace switchback::bench
