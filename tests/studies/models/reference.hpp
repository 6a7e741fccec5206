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

/// The derivative of f by x, which f reads, as a central difference. f is evaluated in f64, so h
/// can be far above rounding. x keeps its value.
inline double derivative(const std::function<double()>& f, double& x, double h = 1e-5) {
  const double kept = x;
  x = kept + h;
  const double above = f();
  x = kept - h;
  const double below = f();
  x = kept;
  return (above - below) / (2 * h);
}

/// The gradient of f at x, by central differences.
inline Values gradient(const std::function<double(const Values&)>& f, Values x, double h = 1e-5) {
  Values g(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    g[i] = derivative([&] { return f(x); }, x[i], h);
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

/// The places of the elements of one head of one sequence in qkv[batch · length, 3·heads·dim] and
/// in its output[batch · length, heads·dim]; parts 0, 1, 2 are queries, keys and values.
struct HeadPlaces {
  std::int64_t first_row, head, heads, dim;
  [[nodiscard]] std::size_t in_qkv(std::int64_t token, std::int64_t part, std::int64_t i) const {
    return at(((first_row + token) * 3 + part) * heads * dim + head * dim + i);
  }
  [[nodiscard]] std::size_t in_out(std::int64_t token, std::int64_t i) const {
    return at((first_row + token) * heads * dim + head * dim + i);
  }
};

/// Calls f(places, token, weights) for each query of causal attention. The weights, of the keys up
/// to the token, are the softmax of the scores.
template <class F>
void for_each_query(const Values& qkv, std::int64_t batch, std::int64_t length, std::int64_t heads,
                    std::int64_t dim, F&& f) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t t = 0; t < length; ++t) {
        const HeadPlaces places = {b * length, head, heads, dim};
        Values weights(at(t + 1));
        for (std::int64_t s = 0; s <= t; ++s) {
          for (std::int64_t i = 0; i < dim; ++i)
            weights[at(s)] += qkv[places.in_qkv(t, 0, i)] * qkv[places.in_qkv(s, 1, i)];
          weights[at(s)] /= std::sqrt(static_cast<double>(dim));
        }
        const double max = *std::max_element(weights.begin(), weights.end());
        double total = 0;
        for (double& w : weights)
          total += w = std::exp(w - max);
        for (double& w : weights)
          w /= total;
        f(places, t, weights);
      }
}

inline Values attention(const Values& qkv, std::int64_t batch, std::int64_t length,
                        std::int64_t heads, std::int64_t dim) {
  Values out(qkv.size() / 3);
  for_each_query(qkv, batch, length, heads, dim,
                 [&](const HeadPlaces& places, std::int64_t t, const Values& weights) {
                   for (std::int64_t s = 0; s <= t; ++s)
                     for (std::int64_t i = 0; i < dim; ++i)
                       out[places.in_out(t, i)] += weights[at(s)] * qkv[places.in_qkv(s, 2, i)];
                 });
  return out;
}

/// The gradient of attention by its formula: with p the weights of a query and g the gradient of
/// its output, dscore = p · (g·v - out·g).
inline Values attention_gradient(const Values& qkv, const Values& dout, std::int64_t batch,
                                 std::int64_t length, std::int64_t heads, std::int64_t dim) {
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  Values gradient(qkv.size());
  for_each_query(qkv, batch, length, heads, dim,
                 [&](const HeadPlaces& places, std::int64_t t, const Values& p) {
                   Values dp(p.size());
                   for (std::int64_t s = 0; s <= t; ++s)
                     for (std::int64_t i = 0; i < dim; ++i)
                       dp[at(s)] += dout[places.in_out(t, i)] * qkv[places.in_qkv(s, 2, i)];
                   const double mean = dot(p, dp);
                   for (std::int64_t s = 0; s <= t; ++s) {
                     const double dscore = scale * p[at(s)] * (dp[at(s)] - mean);
                     for (std::int64_t i = 0; i < dim; ++i) {
                       const std::size_t query = places.in_qkv(t, 0, i);
                       const std::size_t key = places.in_qkv(s, 1, i);
                       gradient[query] += dscore * qkv[key];
                       gradient[key] += dscore * qkv[query];
                       gradient[places.in_qkv(s, 2, i)] += p[at(s)] * dout[places.in_out(t, i)];
                     }
                   }
                 });
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
