// SPDX-License-Identifier: Apache-2.0
// Tuner: what a Prover and its child say to each other. The Prover begins with a setting, which the
// child answers with ready_answer() or `cannot`; then each line is an entry of a cache, whose key
// and one candidate are what to prove, and each answer is one of the words, with a text after all
// but `right`.
#pragma once

#include <string>
#include <string_view>

namespace switchback::autotune {

inline constexpr std::string_view right_word = "right";
inline constexpr std::string_view wrong_word = "wrong ";
/// Wrong, and the child's device does not survive it: the child ends.
inline constexpr std::string_view dead_word = "dead ";
/// It could not be tried.
inline constexpr std::string_view cannot_word = "cannot ";

/// The text behind a word; empty if the line does not begin with it.
inline std::string_view after(std::string_view line, std::string_view word) {
  return line.starts_with(word) ? line.substr(word.size()) : std::string_view();
}

/// A text as one line that is not empty.
std::string one_line(std::string_view text);

/// "ready 0.1.0": of the same version and kernels as this library.
std::string ready_answer();

/// The Context in which candidates are proven.
struct ProofSetting {
  std::string device;  ///< as ContextOptions::device names it
  int threads = 0;
  std::string isa;
  std::string place;  ///< of a device: its address on the bus, which must be the same there
};
std::string to_line(const ProofSetting& setting);
/// False if the line is none.
bool from_line(std::string_view line, ProofSetting& setting);

}  // namespace switchback::autotune
