// SPDX-License-Identifier: Apache-2.0
// Tuner: the protocol between a Validator and its child. The Validator first sends a setting, which
// the child answers with ready_answer() or `cannot`. Each further line is an entry of a cache: its
// key and its one candidate say what to validate. Each answer begins with one of the words below;
// all but `right` are followed by a text.
#pragma once

#include <string>
#include <string_view>

namespace switchback::autotune {

inline constexpr std::string_view right_word = "right";
inline constexpr std::string_view wrong_word = "wrong ";
/// The answer if the candidate is wrong and the child can no longer use its device. The child then
/// ends.
inline constexpr std::string_view dead_word = "dead ";
/// The answer if the candidate could not be tried.
inline constexpr std::string_view cannot_word = "cannot ";

/// The text of an answer after its first word; empty if the line does not begin with that word.
inline std::string_view after(std::string_view line, std::string_view word) {
  return line.starts_with(word) ? line.substr(word.size()) : std::string_view();
}

/// Converts a text to one line that is not empty.
std::string one_line(std::string_view text);

/// The answer of a child whose protocol and library have the same versions as here: "ready 1
/// 0.1.0".
std::string ready_answer();

/// The Context in which candidates are validated.
struct ValidationSetting {
  std::string device;  ///< the device, as ContextOptions::device names it
  int threads = 0;
  std::string isa;
  std::string place;  ///< PCI bus id of a GPU; the child's device must have the same id
};
std::string to_line(const ValidationSetting& setting);
/// Parses a setting as to_line() writes it. Returns false if the line is not a setting.
bool from_line(std::string_view line, ValidationSetting& setting);

}  // namespace switchback::autotune
