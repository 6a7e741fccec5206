// SPDX-License-Identifier: Apache-2.0
// Models: a decoder like Llama: RMSNorm before attention and before the MLP, rotary positions,
// causal attention, SwiGLU, an output head whose weight is not that of the embedding, no biases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "studies/models/layers.hpp"

namespace switchback::models {

struct DecoderOptions {
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;   ///< d_model: a multiple of heads; width / heads must be even
  std::int64_t hidden = 0;  ///< width of the MLP (SwiGLU)
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  ///< number of tokens of the longest sequence
  float rope_theta = 10000.0f;
  DType dtype = DType::f32;  ///< type of activations and products: f32 or bf16
  Mode mode = Mode::standard;
  /// How linear layers compute dW. int8_block needs mode rowwise, rowwise_shared, global or auto.
  WeightGradient dw = WeightGradient::floating;
  /// Hadamard rotation of the linear layers' inputs and weights before they are quantized. Width
  /// and hidden must be multiples of its group. For all int8 modes except auto.
  Rotation rotation = Rotation::none;

  /// The number of parameters, 2·V·d + L·(4·d² + 3·d·h + 2·d) + d, where V = vocabulary, d = width,
  /// h = hidden and L = layers.
  [[nodiscard]] std::int64_t parameters() const;
};

/// A decoder for training and inference. At most one of its forwards may wait for its backward.
class Decoder {
 public:
  /// Creates the decoder's parameters in `parameters`, or uses those that exist: decoders with the
  /// same Parameters train the same weights. Throws Error(invalid_argument).
  Decoder(const Surroundings& around, Parameters& parameters, const DecoderOptions& options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Sequences of equal length: tokens[batch · length], each from 0 to vocabulary - 1.
  struct Batch {
    Tokens tokens;
    std::int64_t batch = 0, length = 0;
  };
  /// Returns logits[batch · length, vocabulary]; keeps no data for backward.
  Tensor infer(const Batch& batch);
  /// Runs a forward for training, which keeps the data that backward needs.
  void forward(const Batch& batch);
  /// Returns the mean cross entropy of the last forward, and replaces its logits by their gradient.
  double loss(Tokens targets);
  /// Returns the mean cross entropy of a batch; no backward can follow.
  double evaluate(const Batch& batch, Tokens targets);
  /// Computes the gradients of all parameters; call it after loss().
  void backward(bool accumulate = false);

  /// Quantizes and packs all weights now; only for models that are used for inference.
  void weights_updated();
  /// Quantizes and packs all weights now, for inference only; training is not possible afterwards.
  void prepare_for_eval();
  [[nodiscard]] const DecoderOptions& options() const noexcept { return options_; }
  /// Bytes of quantized weights that the linear layers hold.
  [[nodiscard]] std::size_t int8_weight_bytes() const;
  void set_profile(Profile* profile) noexcept { around_.profile = profile; }

 private:
  class Block;
  Tensor run(const Batch& batch, bool keeps);
  void check(const Batch& batch) const;
  [[nodiscard]] AttentionShape attention_shape() const;
  [[nodiscard]] Rope rotary() const;

  Surroundings around_;
  DecoderOptions options_;
  Parameter& embedding_;
  Parameter& final_gain_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Linear> head_;
  Tensor cosines_, sines_;
  // These members are kept for backward.
  std::vector<std::int32_t> tokens_;
  Tensor tokens_on_device_;
  std::int64_t batch_ = 0, length_ = 0;
  Tensor last_, last_rstd_, normed_, logits_;
  bool has_forward_ = false, has_loss_ = false;
};

}  // namespace switchback::models
