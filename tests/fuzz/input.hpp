// SPDX-License-Identifier: Apache-2.0
// Test support: a fuzz target's bytes as a stream of decisions, and the reaction to a broken rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace switchback::test {

/// Prints the error and stops in the way that fuzzers detect.
#define FUZZ_REQUIRE(condition, ...)                                                 \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                             \
      std::fprintf(stderr, "\n");                                                    \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return at_ >= size_; }
  /// Zero at the end.
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  /// The last byte that is left, for decisions that inputs made earlier did not contain.
  std::uint8_t byte_from_end() { return at_ < size_ ? data_[--size_] : std::uint8_t{0}; }
  /// In [0, bound), bound <= 256.
  int below(int bound) { return byte() % bound; }
  /// True about once in n bytes, and never at the end.
  bool rarely(int n) { return byte() % n == n - 1; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

}  // namespace switchback::test
