// SPDX-License-Identifier: Apache-2.0
// Models: the components of a model's blocks: shared context, a linear layer with parameters, and
// the data that forward keeps of a linear's input.
#pragma once

#include <string>

#include "studies/models/memory.hpp"
#include "studies/models/parameters.hpp"
#include "studies/models/profile.hpp"
#include "switchback/linear.hpp"

namespace switchback::models {

/// The environment of a model. Used by one thread at a time.
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
  float deviation = 0.02f;  ///< standard deviation of the weight's initial values
  Mode mode = Mode::standard;
  DType dtype = DType::f32;
  Activation activation = Activation::none;  ///< applied to its input
  WeightGradient dw = WeightGradient::floating;
  Rotation rotation = Rotation::none;
};

/// The kept input x[M,K] of a linear layer: x itself, or codes with absmax, which need a quarter of
/// the bytes.
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

/// A SwitchbackLinear with its parameters. It keeps no data of a forward: its caller does, and may
/// run several forwards before their backwards.
class Linear {
 public:
  Linear(const Surroundings& around, Parameters& parameters, const LinearSpec& spec);

  /// y = x · Wᵀ + b.
  void forward(ConstAnyMatrix x, AnyMatrix y);
  /// The same for training: the weight is also quantized for backward.
  void forward_for_training(ConstAnyMatrix x, AnyMatrix y);
  /// Stores x as codes in `kept`. In the int8 modes these are the codes that the product reads.
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
  /// Tells the layer that the weights have changed.
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
/// Dequantizes a tensor that was kept as codes.
Tensor dequantized(const Surroundings& around, const KeptTensor& kept, DType dtype);

}  // namespace switchback::models
