// SPDX-License-Identifier: Apache-2.0
// Test support: every layer of a model in f64, by its formula, and gradients by central
// differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace switchback::test::reference {

using Values = std::vector<double>;

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// The gradient of f at x, by central differences. f is evaluated in f64, so h can be far above
/// rounding.
inline Values gradient(const std::function<double(const Values&)>& f, Values x, double h = 1e-5) {
  Values g(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = f(x);
    x[i] = kept - h;
    const double below = f(x);
    x[i] = kept;
    g[i] = (above - below) / (2 * h);
  }
  return g;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

inline Values sum(const Values& a, const Values& b) {
  Values c = a;
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] += b[i];
  return c;
}

/// A linear layer: x[rows, in] · weight[out, in]ᵀ + bias[out].
inline Values linear(const Values& x, std::int64_t rows, const Values& weight, std::int64_t in,
                     const Values& bias = {}) {
  const auto out = static_cast<std::int64_t>(weight.size()) / in;
  Values y(at(rows * out));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double total = bias.empty() ? 0 : bias[at(o)];
      for (std::int64_t i = 0; i < in; ++i)
        total += x[at(r * in + i)] * weight[at(o * in + i)];
      y[at(r * out + o)] = total;
    }
  return y;
}

inline Values rms_norm(const Values& x, std::int64_t cols, const Values& gain) {
  Values y(x.size());
  for (std::size_t r = 0; r < x.size(); r += at(cols)) {
    double squares = 0;
    for (std::size_t c = 0; c < at(cols); ++c)
      squares += x[r + c] * x[r + c];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
    for (std::size_t c = 0; c < at(cols); ++c)
      y[r + c] = x[r + c] * rstd * gain[c];
  }
  return y;
}

inline Values layer_norm(const Values& x, std::int64_t cols, const Values& gain,
                         const Values& bias) {
  Values y(x.size());
  const auto count = static_cast<double>(cols);
  for (std::size_t r = 0; r < x.size(); r += at(cols)) {
    double mean = 0;
    for (std::size_t c = 0; c < at(cols); ++c)
      mean += x[r + c] / count;
    double variance = 0;
    for (std::size_t c = 0; c < at(cols); ++c)
      variance += (x[r + c] - mean) * (x[r + c] - mean) / count;
    const double rstd = 1 / std::sqrt(variance + 1e-5);
    for (std::size_t c = 0; c < at(cols); ++c)
      y[r + c] = (x[r + c] - mean) * rstd * gain[c] + bias[c];
  }
  return y;
}

/// RoPE: qkv[rows, 3·heads·dim] with its queries and keys rotated.
inline Values rope(Values qkv, std::int64_t length, std::int64_t heads, std::int64_t dim,
                   double theta) {
  const std::int64_t width = 3 * heads * dim;
  const auto rows = static_cast<std::int64_t>(qkv.size()) / width;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t head = 0; head < 2 * heads; ++head)
      for (std::int64_t i = 0; i < dim / 2; ++i) {
        const double angle =
            static_cast<double>(r % length) *
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        double& a = qkv[at(r * width + head * dim + i)];
        double& b = qkv[at(r * width + head * dim + i + dim / 2)];
        const double x = a;
        a = x * std::cos(angle) - b * std::sin(angle);
        b = x * std::sin(angle) + b * std::cos(angle);
      }
  return qkv;
}

/// Causal attention over qkv[batch · length, 3·heads·dim].
inline Values attention(const Values& qkv, std::int64_t batch, std::int64_t length,
                        std::int64_t heads, std::int64_t dim) {
  const std::int64_t width = heads * dim;
  Values out(at(batch * length * width));
  const auto element = [&](std::int64_t row, std::int64_t part, std::int64_t head, std::int64_t i) {
    return qkv[at(row * 3 * width + part * width + head * dim + i)];
  };
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t t = 0; t < length; ++t) {
        Values weights(at(t + 1));
        double max = -1e300;
        for (std::int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < dim; ++i)
            score += element(b * length + t, 0, head, i) * element(b * length + s, 1, head, i);
          weights[at(s)] = score / std::sqrt(static_cast<double>(dim));
          max = std::max(max, weights[at(s)]);
        }
        double total = 0;
        for (double& w : weights)
          total += w = std::exp(w - max);
        for (std::int64_t i = 0; i < dim; ++i) {
          double value = 0;
          for (std::int64_t s = 0; s <= t; ++s)
            value += weights[at(s)] / total * element(b * length + s, 2, head, i);
          out[at((b * length + t) * width + head * dim + i)] = value;
        }
      }
  return out;
}

/// The gradient of attention by its formula: with p the weights of a query and g the gradient of
/// its output, dscore = p · (g·v - out·g).
inline Values attention_gradient(const Values& qkv, const Values& dout, std::int64_t batch,
                                 std::int64_t length, std::int64_t heads, std::int64_t dim) {
  const std::int64_t width = heads * dim;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  Values gradient(qkv.size());
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t t = 0; t < length; ++t) {
        const auto place = [&](std::int64_t row, std::int64_t part, std::int64_t i) {
          return at((b * length + row) * 3 * width + part * width + head * dim + i);
        };
        const auto g = [&](std::int64_t i) {
          return dout[at((b * length + t) * width + head * dim + i)];
        };
        Values p(at(t + 1)), dp(at(t + 1));
        double max = -1e300;
        for (std::int64_t s = 0; s <= t; ++s) {
          for (std::int64_t i = 0; i < dim; ++i) {
            p[at(s)] += scale * qkv[place(t, 0, i)] * qkv[place(s, 1, i)];
            dp[at(s)] += g(i) * qkv[place(s, 2, i)];
          }
          max = std::max(max, p[at(s)]);
        }
        double total = 0;
        for (double& score : p)
          total += score = std::exp(score - max);
        for (double& weight : p)
          weight /= total;
        const double mean = dot(p, dp);
        for (std::int64_t s = 0; s <= t; ++s) {
          const double dscore = scale * p[at(s)] * (dp[at(s)] - mean);
          for (std::int64_t i = 0; i < dim; ++i) {
            gradient[place(t, 0, i)] += dscore * qkv[place(s, 1, i)];
            gradient[place(s, 1, i)] += dscore * qkv[place(t, 0, i)];
            gradient[place(s, 2, i)] += p[at(s)] * g(i);
          }
        }
      }
  return gradient;
}

/// SwiGLU: h[rows, hidden] of gate_up[rows, 2·hidden].
inline Values swiglu(const Values& gate_up, std::int64_t hidden) {
  Values h(gate_up.size() / 2);
  for (std::size_t i = 0; i < h.size(); ++i) {
    const std::size_t r = i / at(hidden) * 2 * at(hidden);
    const double a = gate_up[r + i % at(hidden)];
    h[i] = a / (1 + std::exp(-a)) * gate_up[r + at(hidden) + i % at(hidden)];
  }
  return h;
}

inline Values gelu(Values x) {
  for (double& v : x)
    v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  return x;
}

/// The mean of -log softmax(row)[target].
inline double cross_entropy(const Values& logits, std::span<const std::int32_t> targets) {
  const std::size_t cols = logits.size() / targets.size();
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const double* const row = &logits[r * cols];
    const double max = *std::max_element(row, row + cols);
    double total = 0;
    for (std::size_t c = 0; c < cols; ++c)
      total += std::exp(row[c] - max);
    loss += std::log(total) + max - row[static_cast<std::size_t>(targets[r])];
  }
  return loss / static_cast<double>(targets.size());
}

}  // namespace switchback::test::reference
