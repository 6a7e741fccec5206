// SPDX-License-Identifier: Apache-2.0
// Models: what the blocks of a model are made of: its surroundings, a linear layer with parameters,
// and what forward keeps of a linear's input.
#pragma once

#include <string>

#include "studies/models/memory.hpp"
#include "studies/models/parameters.hpp"
#include "studies/models/profile.hpp"
#include "switchback/linear.hpp"

namespace switchback::models {

/// What a model computes with. One thread at a time.
struct Surroundings {
  Context& context;
  Memory& memory;
  Profile* profile = nullptr;

  [[nodiscard]] ContextState& state() const { return context.state(); }
  [[nodiscard]] Tensor take(MemoryClass c, DType dtype, std::int64_t rows,
                            std::int64_t cols) const {
    return memory.take(c, dtype, rows, cols);
  }
};

struct LinearSpec {
  std::string name;  ///< of its parameters: NAME.weight, NAME.bias
  std::int64_t in = 0, out = 0;
  bool bias = false;
  float deviation = 0.02f;  ///< of the weight's initial values
  Mode mode = Mode::standard;
  DType dtype = DType::f32;
  Activation activation = Activation::none;  ///< of its input
  WeightGradient dw = WeightGradient::floating;
  Rotation rotation = Rotation::none;
};

/// What was kept of a linear's input x[M,K]: x, or codes with absmax, a quarter of its bytes.
struct KeptTensor {
  Tensor x;
  Tensor codes;
  Tensor absmax;

  [[nodiscard]] KeptInput input() const;
  void reset() {
    x.reset();
    codes.reset();
    absmax.reset();
  }
};

/// A SwitchbackLinear with its parameters. It keeps nothing of a forward: its caller does, and may
/// run several forwards before their backwards.
class Linear {
 public:
  Linear(const Surroundings& around, Parameters& parameters, const LinearSpec& spec);

  /// y = x · Wᵀ + b.
  void forward(ConstAnyMatrix x, AnyMatrix y);
  /// The same for training: the codes of the weight are made for backward too.
  void forward_for_training(ConstAnyMatrix x, AnyMatrix y);
  /// Keeps x as codes in `kept`. In the int8 modes these are the codes that the product reads.
  void forward_keeping_codes(const Surroundings& around, ConstAnyMatrix x, AnyMatrix y,
                             KeptTensor& kept);
  struct Gradient {
    ConstAnyMatrix g = {};
    AnyMatrix dx = {};        ///< null data: not wanted
    bool accumulate = false;  ///< add to the parameters' gradients
    ConstAnyMatrix y = {};    ///< see LinearGrads
    Activation y_activation = Activation::none;
    bool dx_of_activation = false;
  };
  void backward(const KeptInput& x, const Gradient& gradient);
  /// The weights have changed.
  void updated();
  void prepare_for_eval() { layer_.prepare_for_eval(); }
  [[nodiscard]] std::size_t cached_weight_bytes() const { return layer_.cached_weight_bytes(); }

 private:
  Parameter& weight_;
  Parameter* bias_;
  SwitchbackLinear layer_;
};

/// Throws Error(invalid_argument) unless there are `count` tokens from 0 to vocabulary - 1.
void check_tokens(std::string_view argument, Tokens tokens, std::int64_t count,
                  std::int64_t vocabulary);
/// Quantizes x per row into `kept`.
void keep_codes(const Surroundings& around, ConstAnyMatrix x, KeptTensor& kept);
/// A tensor of what was kept as codes, dequantized.
Tensor dequantized(const Surroundings& around, const KeptTensor& kept, DType dtype);

}  // namespace switchback::models
