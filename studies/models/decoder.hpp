// SPDX-License-Identifier: Apache-2.0
// Models: a decoder like Llama: RMSNorm before each half of a block, rotary positions, causal
// attention, SwiGLU, an untied head, no biases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "studies/models/layers.hpp"

namespace switchback::models {

struct DecoderOptions {
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;   ///< d_model: a multiple of heads; a head's width must be even
  std::int64_t hidden = 0;  ///< of SwiGLU
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  ///< the longest sequence
  float rope_theta = 10000.0f;
  DType dtype = DType::f32;  ///< of activations and products: f32 or bf16
  Mode mode = Mode::standard;
  /// How linear layers compute dW. Modes rowwise, rowwise_shared, global and auto have int8_block.
  WeightGradient dw = WeightGradient::floating;
  /// Applied before the quantization of linear layers' inputs and weights; width and hidden must be
  /// multiples of its group. For all int8 modes except auto.
  Rotation rotation = Rotation::none;

  /// The number of parameters: 2·V·d + L·(4·d² + 3·d·h + 2·d) + d.
  [[nodiscard]] std::int64_t parameters() const;
};

/// At most one forward may wait for its backward.
class Decoder {
 public:
  /// Throws Error(invalid_argument). Decoders that share parameters train the same weights.
  Decoder(const Surroundings& around, Parameters& parameters, const DecoderOptions& options);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// tokens[batch · length] from 0 to vocabulary - 1.
  struct Batch {
    Tokens tokens;
    std::int64_t batch = 0, length = 0;
  };
  /// logits[batch · length, vocabulary]; keeps nothing.
  Tensor infer(const Batch& batch);
  /// Keeps the data that backward needs.
  void forward(const Batch& batch);
  /// The mean cross entropy of the last forward; its logits become their gradient.
  double loss(Tokens targets);
  /// The mean cross entropy without a backward.
  double evaluate(const Batch& batch, Tokens targets);
  /// Computes the gradients of all parameters; call it after loss().
  void backward(bool accumulate = false);

  /// Call it after a step of an optimizer.
  void weights_updated();
  /// Quantizes the weights now; only for inference.
  void prepare_for_eval();
  [[nodiscard]] const DecoderOptions& options() const noexcept { return options_; }
  /// Bytes of quantized weights that its layers hold.
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
  // Kept for backward.
  std::vector<std::int32_t> tokens_;
  Tensor tokens_on_device_;
  std::int64_t batch_ = 0, length_ = 0;
  Tensor last_, last_rstd_, normed_, logits_;
  bool has_forward_ = false, has_loss_ = false;
};

}  // namespace switchback::models
