// SPDX-License-Identifier: Apache-2.0
// Models: arguments of the operations of kernels.hpp, also for device code.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/matrix.hpp"

namespace switchback::models {

using Tokens = std::span<const std::int32_t>;

/// RMSNorm (Zhang and Sennrich 2019): y = s · rstd · gain, s = x (+ add), rstd[r] = 1/sqrt(mean(s²)
/// + 1e-5). Writes s to `sum` if `add` is given.
struct RmsNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {};
  AnyMatrix y = {};
  std::span<float> rstd = {};
};

/// dx += the gradient of s; dgain (+)= the gradient of the gain.
struct RmsNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {};
  bool accumulate = false;  ///< add to dgain
};

/// LayerNorm (Ba et al. 2016): y = (s - mean) · rstd · gain + bias, s = x (+ add), with the biased
/// variance + 1e-5. Writes s to `sum` if `add` is given.
struct LayerNorm {
  ConstAnyMatrix x = {}, add = {};
  AnyMatrix sum = {};
  std::span<const float> gain = {}, bias = {};
  AnyMatrix y = {};
  std::span<float> mean = {}, rstd = {};
};

/// dx = the gradient of s.
struct LayerNormBackward {
  ConstAnyMatrix s = {};
  std::span<const float> gain = {}, mean = {}, rstd = {};
  ConstAnyMatrix dy = {};
  AnyMatrix dx = {};
  std::span<float> dgain = {}, dbias = {};
  bool accumulate = false;  ///< add to dgain and dbias
};

/// Rotary positions (Su et al. 2021), in place, of the queries and keys in qkv[B·T, 3·H·D]: element
/// i < D/2 of a head and element i + D/2 are rotated by the angle t · theta^(-2i/D).
struct Rope {
  std::int64_t heads = 0, head_dim = 0, length = 0;
  std::span<const float> cosines = {}, sines = {};  ///< [length, D/2]
};

struct AttentionShape {
  std::int64_t batch = 0, length = 0, heads = 0, head_dim = 0;
  [[nodiscard]] std::int64_t rows() const { return batch * length; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
};

/// Zeroes each element with probability p and multiplies the other elements by 1/(1 - p), in place.
/// The choice is a function of the key, the stream, and the element's number (counted from
/// `first`). So backward makes the same call on the gradient, and no mask is kept.
struct Dropout {
  float p = 0;
  std::uint64_t key = 0;
  std::uint64_t stream = 0;
  std::int64_t first = 0;  ///< a multiple of 64
};

/// A slice of parameters with their gradient and the optimizer's moments, all of one length. `copy`
/// is the bf16 copy that products read; null if there is no copy.
struct Update {
  float* value = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;   ///< SGD: velocity
  float* second = nullptr;  ///< AdamW
  bfloat16* copy = nullptr;
  std::int64_t size = 0;
  float weight_decay = 0;
};

struct SgdRates {
  float learning_rate = 0, momentum = 0;
  bool nesterov = false;
  bool first_step = false;  ///< velocity = gradient
};

struct AdamRates {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  float correction1 = 1, correction2 = 1;  ///< 1/(1 - beta^step)
};

}  // namespace switchback::models
