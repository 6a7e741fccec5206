// SPDX-License-Identifier: Apache-2.0
// Models: optimizers, which step all parameters of a model.
#pragma once

#include <memory>
#include <vector>

#include "studies/models/parameters.hpp"

namespace switchback::models {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step from the gradients. Afterwards the layers must be told that their weights have
  /// changed.
  virtual void step(ContextState& state) = 0;
  /// The learning rate of the following steps.
  virtual void set_learning_rate(float rate) = 0;
};

struct SgdOptions {
  float learning_rate = 0.01f, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
/// Like torch.optim.SGD. Weight decay applies to all parameters.
std::unique_ptr<Optimizer> make_sgd(Parameters& parameters, Memory& memory,
                                    const SgdOptions& options);

struct AdamWOptions {
  float learning_rate = 1e-3f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f;
};
/// Like torch.optim.AdamW. Weight decay applies to matrices.
std::unique_ptr<Optimizer> make_adamw(Parameters& parameters, Memory& memory,
                                      const AdamWOptions& options);

}  // namespace switchback::models
