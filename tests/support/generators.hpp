// SPDX-License-Identifier: Apache-2.0
// Test support: special values, and seeded random data, which is the same on every platform.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "support/matrix.hpp"

namespace switchback::test {

inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// SplitMix64 (Steele, Lea, Flood 2014): small, seedable, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// A random integer in [0, bound).
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(next() >> 11) + 1.0) * 0x1p-53; }
  float normal() {
    return static_cast<float>(std::sqrt(-2.0 * std::log(uniform())) *
                              std::cos(2.0 * std::numbers::pi * uniform()));
  }

 private:
  std::uint64_t state_;
};

template <class T>
void fill_normal(Matrix<T>& m, Random& random, float scale = 1.0f) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c, T(random.normal() * scale));
}

/// A matrix of normally distributed numbers. The seed of the generator depends on the shape and on
/// `seed`.
template <class T>
Matrix<T> normal_of_size(std::int64_t rows, std::int64_t cols, Layout layout = {},
                         float scale = 1.0f, std::uint64_t seed = 0) {
  Matrix<T> x(rows, cols, layout);
  Random random(static_cast<std::uint64_t>(rows * 1000 + cols) + seed);
  fill_normal(x, random, scale);
  return x;
}

/// Fills m with random codes in the range that quantize operations use: [-127, 127].
inline void fill_codes(Matrix<std::int8_t>& m, Random& random) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c, static_cast<std::int8_t>(random.below(255) - 127));
}

template <class T>
void fill_constant(Matrix<T>& m, std::type_identity_t<T> value) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c, value);
}

}  // namespace switchback::test
