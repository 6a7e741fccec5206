// SPDX-License-Identifier: Apache-2.0
#include "autotune/validation/words.hpp"

#include <fmt/format.h>

#include <charconv>

#if !defined(SWITCHBACK_VERSION)
#error "the build names the version"
#endif

namespace switchback::autotune {

namespace {

constexpr std::string_view setting_word = "validate ";
// The version of the protocol. Increase it when the meaning of its lines changes.
constexpr int protocol = 1;

}  // namespace

std::string one_line(std::string_view text) {
  constexpr std::size_t most = 4096;
  std::string line;
  for (const char c : text.substr(0, most))
    line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return line.empty() ? "without a reason" : line;
}

std::string ready_answer() {
  return fmt::format("ready {} {}", protocol, SWITCHBACK_VERSION);
}

// Writes the words of a setting separated by commas, which no word contains.
std::string to_line(const ValidationSetting& setting) {
  return fmt::format("{}{},{},{},{}", setting_word, setting.device, setting.threads, setting.isa,
                     setting.place);
}

bool from_line(std::string_view line, ValidationSetting& setting) {
  std::string_view words = after(line, setting_word);
  if (words.empty()) return false;
  const auto take = [&words](std::string& word) {
    const std::size_t comma = words.find(',');
    if (comma == std::string_view::npos) return false;
    word = words.substr(0, comma);
    words.remove_prefix(comma + 1);
    return true;
  };
  std::string threads;
  if (!take(setting.device) || !take(threads) || !take(setting.isa)) return false;
  setting.place = words;
  const char* const end = threads.data() + threads.size();
  return std::from_chars(threads.data(), end, setting.threads).ptr == end;
}

}  // namespace switchback::autotune
