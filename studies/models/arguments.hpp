// SPDX-License-Identifier: Apache-2.0
// Models: argument structs of the operations in kernels.hpp. Device code includes this header too.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/matrix.hpp"

namespace switchback::models {

using Tokens = std::span<const std::int32_t>;

/// RMSNorm (Zhang and Sennrich 2019): y = s · rstd · gain, where s = x, or x + add if `add` is
/// given; rstd[r] = 1/sqrt(mean(s²) + 1e-5). Writes s to `sum` if `add` is given.
struct RmsNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {};
  AnyMatrix y = {};
  std::span<float> rstd = {};
};

/// Backward of RMSNorm from dy: adds the gradient of s, the input, to dx; writes or adds the
/// gradient of the gain to dgain.
struct RmsNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {};
  bool accumulate = false;  ///< add to dgain instead of overwriting it
};

/// LayerNorm (Ba et al. 2016): y = (s - mean) · rstd · gain + bias, where s = x, or x + add if
/// `add` is given. rstd uses the biased variance + 1e-5. Writes s to `sum` if `add` is given.
struct LayerNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {}, bias = {};
  AnyMatrix y = {};
  std::span<float> mean = {}, rstd = {};
};

/// Backward of LayerNorm from dy: dx becomes the gradient of s, the input.
struct LayerNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, mean = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {}, dbias = {};
  bool accumulate = false;  ///< add to dgain and dbias instead of overwriting them
};

/// Rotary positions (Su et al. 2021), in place, of the queries and keys in qkv[B·T, 3·H·D]: at
/// position t, element i < D/2 of a head and element i + D/2 are rotated by the angle t ·
/// theta^(-2i/D).
struct Rope {
  std::int64_t heads = 0, head_dim = 0, length = 0;
  std::span<const float> cosines = {}, sines = {};  ///< of the angles, [length, D/2]
};

struct AttentionShape {
  std::int64_t batch = 0, length = 0, heads = 0, head_dim = 0;
  [[nodiscard]] std::int64_t rows() const { return batch * length; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
};

/// Dropout, in place: zeroes each element with probability p and multiplies the others by 1/(1 -
/// p). The choice depends only on the key, the stream, and the element's number, counted from
/// `first`. So backward makes the same call on the gradient, and no mask is kept.
struct Dropout {
  float p = 0;
  std::uint64_t key = 0;
  std::uint64_t stream = 0;
  std::int64_t first = 0;  ///< number of the first element; a multiple of 64
};

/// Some consecutive parameters with their gradient and the optimizer's moments, all of length
/// `size`. `copy` is the bf16 copy of the parameters that matrix products read; null if there is
/// none.
struct Update {
  float* value = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;   ///< SGD: velocity; AdamW: first moment
  float* second = nullptr;  ///< AdamW: second moment
  bfloat16* copy = nullptr;
  std::int64_t size = 0;
  float weight_decay = 0;
};

struct SgdRates {
  float learning_rate = 0, momentum = 0;
  bool nesterov = false;
  bool first_step = false;  ///< the velocity starts as the gradient
};

struct AdamRates {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  float correction1 = 1, correction2 = 1;  ///< 1/(1 - beta^step), for beta1 and beta2
};

}  // namespace switchback::models
