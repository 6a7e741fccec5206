// SPDX-License-Identifier: Apache-2.0
// Example: reads the images of handwritten digits in data/digits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t pixels = 64;
inline constexpr std::size_t classes = 10;

struct Images {
  std::vector<float> x;    ///< pixels of the images, [count, pixels], from 0 to 1
  std::vector<int> label;  ///< [count]
  [[nodiscard]] std::size_t count() const { return label.size(); }
};

/// Reads images from a CSV file. Throws std::runtime_error that names the file, the line and the
/// error.
Images read(const std::string& file);
/// Copies `count` images of `all`, starting with the image number `first`.
Images part(const Images& all, std::size_t first, std::size_t count);

}  // namespace digits
