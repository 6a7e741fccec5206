// SPDX-License-Identifier: Apache-2.0
// Example: the handwritten digits of data/digits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t pixels = 64;
inline constexpr std::size_t classes = 10;

struct Images {
  std::vector<float> x;    ///< [count, pixels], from 0 to 1
  std::vector<int> label;  ///< [count]
  [[nodiscard]] std::size_t count() const { return label.size(); }
};

/// Throws std::runtime_error that names the file, the line and the error.
Images read(const std::string& file);
/// `count` images, starting at `first`.
Images part(const Images& all, std::size_t first, std::size_t count);

}  // namespace digits
