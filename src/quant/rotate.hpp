// SPDX-License-Identifier: Apache-2.0
// Reference zone: the rotation of one group, which every engine reproduces bit for bit, and the
// check of the argument. Needs the default floating-point environment.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "switchback/rotation.hpp"

namespace switchback::quant {

/// All rotations except none, the smallest first.
inline constexpr std::array rotations = {Rotation::hadamard_4, Rotation::hadamard_16,
                                         Rotation::hadamard_64, Rotation::hadamard_256,
                                         Rotation::hadamard_1024};

/// The number of elements that are rotated together.
constexpr std::int64_t group_of(Rotation rotation) noexcept {
  return static_cast<std::int64_t>(rotation);
}

inline constexpr std::int64_t largest_rotation = group_of(rotations.back());

constexpr bool is_rotation(Rotation rotation) noexcept {
  return std::find(rotations.begin(), rotations.end(), rotation) != rotations.end();
}

/// Checks that the rotation is known and not none, and that `cols` is a multiple of its group.
void check_rotation(std::string_view op, Rotation rotation, std::int64_t cols,
                    std::string_view cols_name);

/// Rotates v[0, group) in place.
inline void rotate_group(float* v, std::int64_t group) noexcept {
  for (std::int64_t stride = 1; stride < group; stride *= 4)
    for (std::int64_t i = 0; i < group; ++i) {
      if (i / stride % 4 != 0) continue;
      const float a = v[i];
      const float b = v[i + stride];
      const float c = v[i + 2 * stride];
      const float d = v[i + 3 * stride];
      const float h = 0.5f * ((a + b) + (c + d));
      v[i] = h - d;
      v[i + stride] = h - c;
      v[i + 2 * stride] = h - b;
      v[i + 3 * stride] = h - a;
    }
}

}  // namespace switchback::quant
