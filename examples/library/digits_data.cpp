// SPDX-License-Identifier: Apache-2.0
#include "digits_data.hpp"

#include <charconv>
#include <fstream>
#include <stdexcept>

namespace digits {

Images read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file + ": cannot be opened");
  Images images;
  std::string line;
  while (std::getline(in, line)) {
    const std::string place = file + ":" + std::to_string(images.count() + 1) + ": ";
    const char* at = line.data();
    const char* const end = at + line.size();
    for (std::size_t i = 0; i <= pixels; ++i) {
      int value = 0;
      const auto parsed = std::from_chars(at, end, value);
      const int most = i < pixels ? 16 : 9;
      if (parsed.ec != std::errc() || value < 0 || value > most)
        throw std::runtime_error(place + "value " + std::to_string(i + 1) +
                                 " is not a number from 0 to " + std::to_string(most));
      at = parsed.ptr;
      const bool last = i == pixels;
      if (last ? at != end : at == end || *at++ != ',')
        throw std::runtime_error(place + "a line holds 64 pixels and a label, with commas between");
      if (last)
        images.label.push_back(value);
      else
        images.x.push_back(static_cast<float>(value) / 16.0f);
    }
  }
  if (images.count() == 0) throw std::runtime_error(file + ": holds no images");
  return images;
}

Images part(const Images& all, std::size_t first, std::size_t count) {
  const auto from = static_cast<std::ptrdiff_t>(first);
  const auto to = static_cast<std::ptrdiff_t>(first + count);
  const auto width = static_cast<std::ptrdiff_t>(pixels);
  return {{all.x.begin() + from * width, all.x.begin() + to * width},
          {all.label.begin() + from, all.label.begin() + to}};
}

}  // namespace digits
