// SPDX-License-Identifier: Apache-2.0
// Test support: reads the input of a fuzz target as a stream of decisions, and reports a broken
// rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace switchback::test {

/// If the condition is false, prints it and aborts, which fuzzers detect.
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
  /// The next byte of the input; zero at its end.
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  /// Takes the last byte that is left, for decisions that inputs made earlier did not contain.
  std::uint8_t byte_from_end() { return at_ < size_ ? data_[--size_] : std::uint8_t{0}; }
  /// A number in [0, bound), from one byte; bound <= 256.
  int below(int bound) { return byte() % bound; }
  /// True for about one in n bytes, and never at the end of the input.
  bool rarely(int n) { return byte() % n == n - 1; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

}  // namespace switchback::test
