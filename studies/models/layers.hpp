// SPDX-License-Identifier: Apache-2.0
// Models: what all models use: a Context with memory, a linear layer with parameters, and the input
// of a linear layer as it is kept for backward.
#pragma once

#include <string>

#include "studies/models/memory.hpp"
#include "studies/models/parameters.hpp"
#include "studies/models/profile.hpp"
#include "switchback/linear.hpp"

namespace switchback::models {

/// What the operations of a model use: the Context, the memory and the profile. For one thread at a
/// time.
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
  std::string name;  ///< names of the parameters: NAME.weight, NAME.bias
  std::int64_t in = 0, out = 0;
  bool bias = false;
  float deviation = 0.02f;  ///< standard deviation of the weight's initial values
  Mode mode = Mode::standard;
  DType dtype = DType::f32;
  Activation activation = Activation::none;  ///< applied to the layer's input
  WeightGradient dw = WeightGradient::floating;
  Rotation rotation = Rotation::none;
};

/// The input x[M,K] of a linear layer, kept for backward: x itself, or int8 codes with absmax,
/// which need a quarter of the bytes.
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

/// A SwitchbackLinear with its parameters. The caller keeps the data of a forward, not the layer,
/// so several forwards may run before their backwards.
class Linear {
 public:
  Linear(const Surroundings& around, Parameters& parameters, const LinearSpec& spec);

  /// y = x · Wᵀ + b.
  void forward(ConstAnyMatrix x, AnyMatrix y);
  /// y = x · Wᵀ + b for training: the weight is also quantized for backward.
  void forward_for_training(ConstAnyMatrix x, AnyMatrix y);
  /// y = x · Wᵀ + b for training; also stores x as int8 codes in `kept`. In int8 modes the product
  /// reads these codes.
  void forward_keeping_codes(const Surroundings& around, ConstAnyMatrix x, AnyMatrix y,
                             KeptTensor& kept);
  struct Gradient {
    ConstAnyMatrix g = {};
    AnyMatrix dx = {};        ///< null: not computed
    bool accumulate = false;  ///< add to the gradients of weight and bias
    ConstAnyMatrix y = {};    ///< as in LinearGrads
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

/// Checks tokens. Throws Error(invalid_argument) unless there are `count`, each from 0 to
/// vocabulary - 1.
void check_tokens(std::string_view argument, Tokens tokens, std::int64_t count,
                  std::int64_t vocabulary);
/// Quantizes x with an absmax per row, and stores codes and absmax in `kept`.
void keep_codes(const Surroundings& around, ConstAnyMatrix x, KeptTensor& kept);
/// Dequantizes an input that was kept as int8 codes.
Tensor dequantized(const Surroundings& around, const KeptTensor& kept, DType dtype);

}  // namespace switchback::models
