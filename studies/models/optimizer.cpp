// SPDX-License-Identifier: Apache-2.0
#include "studies/models/optimizer.hpp"

#include <cmath>

namespace switchback::models {

namespace {

Tensor zeros_like(ContextState& state, Memory& memory, const Tensor& of) {
  Tensor t = memory.take(MemoryClass::optimizer, DType::f32, of.rows(), of.cols());
  zero(state, t.any());
  return t;
}

Update update_of(const Parameter& p) {
  return {.value = p.value.floats().data(),
          .gradient = p.gradient.floats().data(),
          .copy = p.copy.empty() ? nullptr : p.copy.values<bfloat16>().data(),
          .size = p.value.size()};
}

class Sgd : public Optimizer {
 public:
  Sgd(Parameters& parameters, Memory& memory, const SgdOptions& options) : options_(options) {
    for (const Parameter& p : parameters.all()) {
      velocity_.push_back(zeros_like(parameters.state(), memory, p.value));
      Update u = update_of(p);
      u.first = velocity_.back().floats().data();
      u.weight_decay = options.weight_decay;
      updates_.push_back(u);
    }
  }
  void step(ContextState& state) override {
    sgd(state,
        {.learning_rate = options_.learning_rate,
         .momentum = options_.momentum,
         .nesterov = options_.nesterov,
         .first_step = first_},
        updates_);
    first_ = false;
  }
  void set_learning_rate(float rate) override { options_.learning_rate = rate; }

 private:
  SgdOptions options_;
  bool first_ = true;
  std::vector<Tensor> velocity_;
  std::vector<Update> updates_;
};

class AdamW : public Optimizer {
 public:
  AdamW(Parameters& parameters, Memory& memory, const AdamWOptions& options) : options_(options) {
    for (const Parameter& p : parameters.all()) {
      for (int i = 0; i < 2; ++i)
        moments_.push_back(zeros_like(parameters.state(), memory, p.value));
      Update u = update_of(p);
      u.first = moments_[moments_.size() - 2].floats().data();
      u.second = moments_.back().floats().data();
      u.weight_decay = p.decays ? options.weight_decay : 0.0f;
      updates_.push_back(u);
    }
  }
  void step(ContextState& state) override {
    ++steps_;
    const auto correction = [&](float beta) {
      return static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(beta), steps_)));
    };
    adamw(state,
          {.learning_rate = options_.learning_rate,
           .beta1 = options_.beta1,
           .beta2 = options_.beta2,
           .epsilon = options_.epsilon,
           .correction1 = correction(options_.beta1),
           .correction2 = correction(options_.beta2)},
          updates_);
  }
  void set_learning_rate(float rate) override { options_.learning_rate = rate; }

 private:
  AdamWOptions options_;
  int steps_ = 0;
  std::vector<Tensor> moments_;
  std::vector<Update> updates_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Parameters& parameters, Memory& memory,
                                    const SgdOptions& options) {
  return std::make_unique<Sgd>(parameters, memory, options);
}
std::unique_ptr<Optimizer> make_adamw(Parameters& parameters, Memory& memory,
                                      const AdamWOptions& options) {
  return std::make_unique<AdamW>(parameters, memory, options);
}

}  // namespace switchback::models
