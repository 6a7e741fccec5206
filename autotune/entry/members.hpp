// SPDX-License-Identifier: Apache-2.0
// Tuner: canonical JSON: flat, names in order, no spaces, integers and strings alone.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace switchback::autotune {

/// The members of a flat JSON object. Not the JSON library's: that one does not survive running out
/// of memory while it builds a value, and a Context may be made meanwhile.
class Members {
 public:
  void set(std::string_view name, std::int64_t value) {
    values_[std::string(name)] = fmt::format("{}", value);
  }
  void set(std::string_view name, std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    values_[std::string(name)] = std::move(text) + '"';
  }
  void erase(std::string_view name) { values_.erase(std::string(name)); }
  /// Names in order, no spaces: equal objects have equal text.
  [[nodiscard]] std::string text() const {
    std::string text = "{";
    for (const auto& [name, value] : values_) {
      if (text.size() > 1) text += ',';
      text += fmt::format("\"{}\":{}", name, value);
    }
    return std::move(text) + '}';
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace switchback::autotune
