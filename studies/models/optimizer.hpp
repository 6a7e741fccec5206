// SPDX-License-Identifier: Apache-2.0
// Models: optimizers, which update all parameters of a model.
#pragma once

#include <memory>
#include <vector>

#include "studies/models/parameters.hpp"

namespace switchback::models {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates all parameters from their gradients. The caller must then tell the layers that their
  /// weights have changed.
  virtual void step(ContextState& state) = 0;
  /// Sets the learning rate of the following steps.
  virtual void set_learning_rate(float rate) = 0;
};

struct SgdOptions {
  float learning_rate = 0.01f, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
/// An optimizer like torch.optim.SGD. Weight decay applies to all parameters.
std::unique_ptr<Optimizer> make_sgd(Parameters& parameters, Memory& memory,
                                    const SgdOptions& options);

struct AdamWOptions {
  float learning_rate = 1e-3f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
};
/// An optimizer like torch.optim.AdamW. Weight decay applies only to the matrices of linear layers.
std::unique_ptr<Optimizer> make_adamw(Parameters& parameters, Memory& memory,
                                      const AdamWOptions& options);

}  // namespace switchback::models
