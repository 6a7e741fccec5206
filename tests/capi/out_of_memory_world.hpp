// SPDX-License-Identifier: Apache-2.0
// Test support: all objects of one C ABI call, for tests that let each allocation of the call fail.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "switchback/switchback.h"

namespace switchback::test {

using Bytes = std::vector<std::byte>;

inline void expect_ok(switchback_status status) {
  ASSERT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
}

inline std::size_t element_bytes(std::int32_t dtype) {
  return dtype == SWITCHBACK_S8 ? 1 : dtype == SWITCHBACK_F16 || dtype == SWITCHBACK_BF16 ? 2 : 4;
}

// A new context, the operands of a call on it, the call itself, and its outputs.
class World {
 public:
  explicit World(std::int32_t threads) {
    switchback_context_options options = {};
    options.struct_size = sizeof(options);
    options.device = "cpu";
    options.threads = threads;
    options.tune = "read";
    options.tune_cache = "/nonexistent";
    expect_ok(switchback_context_create(&options, &context));
  }
  ~World() {
    switchback_fragmented_linear_destroy(fragmented_layer);
    switchback_linear_destroy(layer);
    switchback_packed_weight_destroy(packed);
    switchback_context_destroy(context);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// A matrix that the call reads. Its values (between -1 and 1, or codes) are the same in every
  /// World.
  switchback_matrix input(std::int32_t dtype, std::int64_t rows, std::int64_t cols) {
    const std::size_t size = element_bytes(dtype);
    Bytes& bytes = memory_.emplace_back(static_cast<std::size_t>(rows * cols) * size);
    for (std::byte* at = bytes.data(); at < bytes.data() + bytes.size(); at += size) {
      seed_ = seed_ * 1664525u + 1013904223u;
      const std::uint32_t random = seed_ >> 8;
      std::uint32_t bits = 0;
      // A random value: a sign, an exponent of 1/4 or 1/2, and random significand bits.
      if (size == 4) bits = (random & 1) << 31 | (125u + (random >> 1 & 1)) << 23 | random >> 2;
      if (dtype == SWITCHBACK_F16)
        bits = (random & 1) << 15 | (13u + (random >> 1 & 1)) << 10 | (random >> 2 & 0x3FFu);
      if (dtype == SWITCHBACK_BF16)
        bits = (random & 1) << 15 | (125u + (random >> 1 & 1)) << 7 | (random >> 2 & 0x7Fu);
      if (size == 1) bits = random % 255u - 127u;
      std::memcpy(at, &bits, size);
    }
    return {bytes.data(), dtype, rows, cols, cols};
  }
  /// A matrix that the call writes. Its old values are those that input() would make.
  switchback_matrix output(std::int32_t dtype, std::int64_t rows, std::int64_t cols) {
    const switchback_matrix matrix = input(dtype, rows, cols);
    outputs_.push_back(memory_.back());
    return matrix;
  }
  float* floats(std::int64_t count) {
    return static_cast<float*>(output(SWITCHBACK_F32, 1, count).data);
  }
  const float* scales(std::int64_t count) {
    auto* const values = static_cast<float*>(input(SWITCHBACK_F32, 1, count).data);
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = 1.0f + values[i] * values[i];
    return values;
  }
  /// An array of numbers that the call reads.
  const std::int32_t* integers(const std::vector<std::int32_t>& values) {
    Bytes& bytes = memory_.emplace_back(values.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return reinterpret_cast<const std::int32_t*>(bytes.data());
  }
  /// Keeps a copy of a struct that the call reads.
  template <class T>
  const T* keep(const T& value) {
    Bytes& bytes = memory_.emplace_back(sizeof(T));
    std::memcpy(bytes.data(), &value, sizeof(T));
    return reinterpret_cast<const T*>(bytes.data());
  }
  /// A layer's input, as the caller keeps it between forward and backward.
  static switchback_kept_input kept(const switchback_matrix& x, const float* absmax,
                                    std::int32_t in_blocks = 0) {
    switchback_kept_input kept = {};
    kept.struct_size = sizeof(kept);
    kept.x = x;
    kept.absmax = const_cast<float*>(absmax);  // a backward only reads absmax
    kept.in_blocks = in_blocks;
    return kept;
  }
  /// A variable that the call writes to, with an initial value.
  template <class T>
  T* result(T initial = {}) {
    Bytes& bytes = memory_.emplace_back(sizeof(T));
    std::memcpy(bytes.data(), &initial, sizeof(T));
    outputs_.push_back(bytes);
    return reinterpret_cast<T*>(bytes.data());
  }

  /// The present bytes of everything that the call may write.
  [[nodiscard]] Bytes written() const {
    Bytes all;
    for (const std::span<const std::byte> output : outputs_)
      all.insert(all.end(), output.begin(), output.end());
    return all;
  }

  /// Creates a layer with K = in and N = out, a weight, a bias, and the data that depends on its
  /// mode.
  void make_layer(std::int32_t mode, std::int32_t dtype, std::int64_t in, std::int64_t out,
                  std::int32_t activation = SWITCHBACK_NO_ACTIVATION,
                  std::int32_t how_dw = SWITCHBACK_DW_FLOATING) {
    switchback_linear_options options = {};
    options.dw = how_dw;
    options.dw_block_rows = 128;
    options.struct_size = sizeof(options);
    options.in_features = in;
    options.out_features = out;
    options.mode = mode;
    options.dtype = dtype;
    options.activation = activation;
    make_layer(options);
  }
  void make_layer(const switchback_linear_options& options) {
    const std::int64_t groups = options.groups == 0 ? 1 : options.groups;
    expect_ok(switchback_linear_create(context, &options, &layer));
    weight = input(options.dtype, groups * options.out_features, options.in_features);
    bias = input(SWITCHBACK_F32, groups, options.out_features);
    expect_ok(switchback_linear_set_weight(layer, &weight, &bias));
  }

  switchback_context* context = nullptr;
  switchback_packed_weight* packed = nullptr;
  switchback_linear* layer = nullptr;
  switchback_fragmented_linear* fragmented_layer = nullptr;
  switchback_matrix weight = {};
  switchback_matrix bias = {};

  std::function<switchback_status()> call;
  /// Run after the call has succeeded: uses its result, if the call does not write it to an output.
  std::function<void()> look = [] {};
  /// Run after the call has failed: checks that an object has not changed.
  std::function<void()> look_unchanged = [] {};
  /// Whether outputs contain addresses of created objects, or text. These differ between two
  /// Worlds.
  bool makes_addresses = false;

 private:
  std::deque<Bytes> memory_;
  std::vector<std::span<std::byte>> outputs_;
  std::uint32_t seed_ = 1;
};

struct Case {
  std::string function;
  std::string what;
  std::function<void(World&)> prepare;
  std::int32_t threads = 1;
};

/// The cases of this test. Each function that returns a status has at least one.
std::vector<Case> cases_of_every_function();
/// Add the cases of blockwise products, of groups of rows, and of fragmented layers.
void blockwise_cases(std::vector<Case>& cases);
void grouped_cases(std::vector<Case>& cases);
void fragmented_cases(std::vector<Case>& cases);

}  // namespace switchback::test
