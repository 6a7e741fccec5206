// SPDX-License-Identifier: Apache-2.0
// Test support: calls of the C ABI with all their objects. There are calls of every function that
// returns a status. Tests let each allocation of a call fail, repeat the calls, and make them on
// small stacks.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capi/sized.hpp"
#include "switchback/switchback.h"

namespace switchback::test {

using Bytes = std::vector<std::byte>;
using Call = std::function<switchback_status()>;

inline void expect_ok(switchback_status status) {
  ASSERT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
}

inline std::size_t element_bytes(std::int32_t dtype) {
  return dtype == SWITCHBACK_S8 ? 1 : dtype == SWITCHBACK_F16 || dtype == SWITCHBACK_BF16 ? 2 : 4;
}

// A new context, the operands of a call on it, the call itself, and its outputs.
class World {
 public:
  explicit World(std::int32_t threads, const char* tune = "read", const char* isa = nullptr) {
    auto options = sized<switchback_context_options>();
    options.device = "cpu";
    options.threads = threads;
    options.isa = isa;
    options.tune = tune;
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
  float* scales(std::int64_t count) {
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
  /// Three groups in `slots` slots, which read rows of a matrix with `rows` rows (0: no index). The
  /// second group is empty, and the last slot unused.
  const switchback_groups* groups(std::int32_t slots, std::int32_t rows = 0) {
    auto made = sized<switchback_groups>();
    made.count = 3;
    made.ends = integers({slots / 2, slots / 2, slots - 1});
    if (rows > 0) {
      std::vector<std::int32_t> index;
      for (std::int32_t slot = 0; slot < slots; ++slot)
        index.push_back(slot * 4 % rows);
      made.row_index = integers(index);
    }
    Bytes& bytes = memory_.emplace_back(sizeof(made));
    std::memcpy(bytes.data(), &made, sizeof(made));
    return reinterpret_cast<const switchback_groups*>(bytes.data());
  }
  /// Fills a matrix in f32 with small integers: the sums of their products are the same in any
  /// order.
  static void fill_with_integers(const switchback_matrix& m) {
    for (std::int64_t i = 0; i < m.rows * m.cols; ++i)
      static_cast<float*>(m.data)[i] = static_cast<float>(i * 37 % 11) - 5.0f;
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

  switchback_context* context = nullptr;
  switchback_packed_weight* packed = nullptr;
  switchback_linear* layer = nullptr;
  switchback_fragmented_linear* fragmented_layer = nullptr;

  Call call;
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
  std::int32_t threads;
};

class Cases : public std::vector<Case> {
 public:
  void add(std::string function, std::string what, std::function<void(World&)> prepare,
           std::int32_t threads = 1) {
    push_back({std::move(function), std::move(what), std::move(prepare), threads});
  }
  /// Adds the case with one thread and with two.
  void add_threaded(const std::string& function, const std::string& what,
                    const std::function<void(World&)>& prepare) {
    for (const std::int32_t threads : {1, 2})
      add(function, what, prepare, threads);
  }
};

Cases context_cases();
Cases quantize_cases();
Cases product_cases();
Cases layer_cases();
Cases fragmented_cases();
inline constexpr Cases (*all_cases[])() = {context_cases, quantize_cases, product_cases,
                                           layer_cases, fragmented_cases};

/// Arguments of products. `groups` is 0 or 3.
switchback_gemm_args gemm_arguments(World& w, std::int64_t groups, bool sums);
switchback_gemm_blockwise_args blockwise_arguments(World& w, std::int32_t dtype);
switchback_gemm_standard_args standard_arguments(World& w, std::int32_t dtype, std::int64_t m,
                                                 std::int64_t n, std::int64_t k);
switchback_gemm_standard_args grouped_standard_arguments(World& w, bool weight_gradient);

/// A kind of linear layer.
struct LayerKind {
  std::int32_t mode = SWITCHBACK_ROWWISE;
  std::int32_t dtype = SWITCHBACK_F32;
  std::int32_t activation = SWITCHBACK_NO_ACTIVATION;
  std::int32_t dw = SWITCHBACK_DW_FLOATING;
  std::int32_t rotation = 0;
};
extern const std::vector<LayerKind> layer_kinds, grouped_kinds;

std::string name_of(const LayerKind& kind);
inline bool is_int8(std::int32_t mode) {
  return mode != SWITCHBACK_STANDARD && mode != SWITCHBACK_AUTO;
}

/// A layer in a World, with the operands of its calls. It has three groups or none.
class LayerCalls {
 public:
  static constexpr std::int64_t N = 170, K = 132, block_rows = 128;

  LayerCalls(World& world, const LayerKind& kind, bool grouped);

  static switchback_linear_options options(const LayerKind& kind, bool grouped);
  /// A forward, with groups if the layer has groups.
  switchback_status forward(std::int32_t save) const;
  /// A backward of the forward that saved.
  switchback_status backward(const switchback_linear_grads& grads) const;
  /// A backward of x itself, which the caller has kept.
  switchback_status backward_from_x(const switchback_linear_grads& grads) const;
  /// The gradients that a backward computes and adds to the old values: db, and dx and dw if they
  /// are wanted. A floating point dW of groups is left out in the int8 modes, because other
  /// libraries may compute it, which allocate where no failure is allowed.
  switchback_linear_grads gradients(bool dx, bool dw) const;

  World* world;
  LayerKind kind;
  const switchback_groups* groups;  ///< null: none
  std::int64_t rows;                ///< of y
  switchback_matrix weight, bias, x, y;
};

/// A fragmented layer in a World.
class FragmentedCalls {
 public:
  static constexpr std::int64_t B = 9, K = 132, N = 70, F = 3, R = 5;

  FragmentedCalls(World& world, std::int32_t mode);

  static switchback_fragmented_linear_options options(std::int32_t mode);
  switchback_status forward(std::int32_t save) const;
  /// A backward: of the forward that saved, or of x, which the caller has kept.
  switchback_status backward(const switchback_fragmented_linear_grads& grads, bool from_x) const;
  /// dX and the selector's gradient, and those of the other weights if they are wanted.
  switchback_fragmented_linear_grads gradients(bool of_weights) const;

  World* world;
  switchback_fragmented_weights weights;
  switchback_matrix x, y;
};

}  // namespace switchback::test
