// SPDX-License-Identifier: Apache-2.0
// Test support: valid arguments of every function of the C ABI, and checks that changed ones are
// refused.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "switchback/switchback.h"

namespace switchback::test {

inline constexpr std::int64_t G = 2, M = 6, K = 16, N = 4, R = 3, block_rows = 128, padded = 128;
inline constexpr unsigned char mark = 0x5A;

/// A matrix that owns its memory. Tests check that a refused call has not changed it.
struct Owned {
  Owned(std::int32_t dtype, std::int64_t rows, std::int64_t cols)
      : bytes(static_cast<std::size_t>(rows * cols * 4), mark),
        matrix{bytes.data(), dtype, rows, cols, cols} {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator const switchback_matrix*() const { return &matrix; }
  operator switchback_matrix() const { return matrix; }
  [[nodiscard]] float* floats() { return reinterpret_cast<float*>(bytes.data()); }
  [[nodiscard]] bool untouched() const {
    return bytes == std::vector<unsigned char>(bytes.size(), mark);
  }

  std::vector<unsigned char> bytes;
  switchback_matrix matrix;
};

template <class T>
T sized() {
  T made = {};
  made.struct_size = sizeof(T);
  return made;
}

inline void expect_refused(switchback_status status, std::string_view text,
                           const std::string& what) {
  EXPECT_EQ(status, SWITCHBACK_INVALID_ARGUMENT) << what;
  const std::string_view error = switchback_last_error();
  EXPECT_NE(error.find(text), std::string_view::npos)
      << what << " wants \"" << text << "\": " << error;
}

class Arguments : public ::testing::Test {
 protected:
  Arguments() {
    auto options = sized<switchback_context_options>();
    options.device = "cpu";
    options.threads = 1;
    EXPECT_EQ(switchback_context_create(&options, &context), SWITCHBACK_OK);
    layer = made(switchback_linear_create, layer_options());
    blocks = made(switchback_linear_create, block_options());
    grouped = made(switchback_linear_create, grouped_options());
    fragmented = made(switchback_fragmented_linear_create, fragmented_options());
    EXPECT_EQ(switchback_packed_weight_create(&packed), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_set_weight(layer, weight, nullptr), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_set_weight(blocks, weight, nullptr), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_set_weight(grouped, weights, nullptr), SWITCHBACK_OK);
    const auto of_fragments = fragmented_weights();
    EXPECT_EQ(switchback_fragmented_linear_set_weights(fragmented, &of_fragments), SWITCHBACK_OK);
  }
  ~Arguments() override {
    switchback_linear_destroy(layer);
    switchback_linear_destroy(blocks);
    switchback_linear_destroy(grouped);
    switchback_fragmented_linear_destroy(fragmented);
    switchback_packed_weight_destroy(packed);
    switchback_context_destroy(context);
  }

  template <class Layer, class Options>
  Layer* made(switchback_status (*create)(switchback_context*, const Options*, Layer**),
              const Options& options) {
    Layer* out = nullptr;
    EXPECT_EQ(create(context, &options, &out), SWITCHBACK_OK) << switchback_last_error();
    return out;
  }

  // The functions below make valid arguments.
  static switchback_linear_options layer_options() {
    auto options = sized<switchback_linear_options>();
    options.in_features = K;
    options.out_features = N;
    options.mode = SWITCHBACK_ROWWISE;
    return options;
  }
  static switchback_linear_options block_options() {
    auto options = layer_options();
    options.dw = SWITCHBACK_DW_INT8_BLOCK;
    options.dw_block_rows = block_rows;
    return options;
  }
  static switchback_linear_options grouped_options() {
    auto options = layer_options();
    options.groups = G;
    return options;
  }
  static switchback_fragmented_linear_options fragmented_options() {
    auto options = sized<switchback_fragmented_linear_options>();
    options.in_features = K;
    options.out_features = N;
    options.fragments = G;
    options.rank = R;
    options.mode = SWITCHBACK_ROWWISE;
    return options;
  }
  switchback_linear_grads grads() {
    auto of = sized<switchback_linear_grads>();
    of.g = g;
    of.dx = dx;
    of.dw = dw;
    of.db = db;
    return of;
  }
  // The input x as the caller keeps it between forward and backward: codes, and scales that a
  // forward writes.
  switchback_kept_input kept_input() {
    auto of = sized<switchback_kept_input>();
    of.x = q;
    of.absmax = absmax.floats();
    return of;
  }
  switchback_kept_input kept_in_blocks() {
    auto of = kept_input();
    of.x = b_t;
    of.in_blocks = 1;
    return of;
  }
  switchback_kept_input kept_x() {
    auto of = sized<switchback_kept_input>();
    of.x = x;
    return of;
  }
  switchback_linear_grads grouped_grads() {
    auto of = grads();
    of.dw = dws;
    of.db = dbs;
    return of;
  }
  switchback_fragmented_linear_grads fragmented_grads() {
    auto of = sized<switchback_fragmented_linear_grads>();
    of.g = g;
    of.dx = dx;
    of.dweight = dw;
    return of;
  }
  switchback_fragmented_weights fragmented_weights() {
    auto of = sized<switchback_fragmented_weights>();
    of.weight = weight;
    of.selector = selector;
    of.down = down;
    of.up = up;
    return of;
  }
  switchback_groups groups() {
    auto of = sized<switchback_groups>();
    of.count = G;
    of.ends = ends;
    return of;
  }
  switchback_quantize_args quantize_args() {
    auto args = switchback_quantize_args_of(x);
    args.q = q;
    args.absmax = absmax.floats();
    return args;
  }
  switchback_gemm_args gemm() {
    auto args = sized<switchback_gemm_args>();
    args.a = a;
    args.b = b;
    args.d = y;
    args.absmax_a = scales.floats();
    args.absmax_b = scales.floats();
    args.absmax_b_count = N;
    return args;
  }
  switchback_gemm_standard_args gemm_standard() {
    auto args = sized<switchback_gemm_standard_args>();
    args.a = x;
    args.b = weight;
    args.d = y;
    args.transpose_b = 1;
    return args;
  }
  switchback_gemm_blockwise_args gemm_blockwise() {
    auto args = sized<switchback_gemm_blockwise_args>();
    args.a = a_t;
    args.b = b_t;
    args.d = dw;
    args.absmax_a = scales.floats();
    args.absmax_b = scales.floats();
    args.block_rows = block_rows;
    return args;
  }
  switchback_gemm_args grouped_gemm(bool of_sums) {
    auto args = sized<switchback_gemm_args>();
    args.a = a;
    args.b = bs;
    args.d = of_sums ? s32 : y;
    if (!of_sums) args.absmax_a = args.absmax_b = scales.floats();
    if (!of_sums) args.absmax_b_count = G;
    args.groups = &good_groups;
    return args;
  }
  switchback_gemm_standard_args grouped_standard() {
    auto args = gemm_standard();
    args.b = weights;
    args.groups = &good_groups;
    return args;
  }

  /// Calls f with one null pointer at a time, and expects that it is refused. `names` has a word
  /// for each argument: "-" if it is not a pointer or may be null.
  template <class... P>
  void refuses_null(std::string_view names, switchback_status (*f)(P...),
                    std::type_identity_t<P>... good) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < names.size();) {
      const std::size_t end = std::min(names.find(' ', at), names.size());
      words.emplace_back(names.substr(at, end - at));
      at = end + 1;
    }
    ASSERT_EQ(words.size(), sizeof...(P)) << names;
    const auto with_null = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
      std::tuple<P...> arguments(good...);
      if constexpr (std::is_pointer_v<std::tuple_element_t<at, std::tuple<P...>>>) {
        if (words[at] == "-") return;
        std::get<at>(arguments) = nullptr;
        expect_refused(std::apply(f, arguments), words[at] + " is a null pointer",
                       std::string(names));
      }
    };
    [&]<std::size_t... at>(std::index_sequence<at...>) {
      (with_null(std::integral_constant<std::size_t, at>()), ...);
    }
    (std::index_sequence_for<P...>());
  }

  /// Expects that a call accepts a struct that is larger than this header's if its end is zero, and
  /// refuses every other size.
  template <class S, class Call>
  void accepts_sizes(std::string_view argument, const S& good, const Call& call) {
    std::vector<unsigned char> bytes(5000);
    const auto with = [&](std::size_t size) {
      std::fill(bytes.begin(), bytes.end(), 0xFF);
      std::memcpy(bytes.data(), &good, sizeof(S));
      std::memcpy(bytes.data(), &size, sizeof(size));
      return call(reinterpret_cast<const S*>(bytes.data()));
    };
    const std::string what = std::string(argument) + " of " + std::to_string(sizeof(S)) + " bytes";
    EXPECT_EQ(with(sizeof(S)), SWITCHBACK_OK) << what << ": " << switchback_last_error();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{9}, sizeof(S) - 1,
                                   std::size_t{4097}, std::numeric_limits<std::size_t>::max()})
      expect_refused(with(size), std::string(argument) + " has struct_size = ", what);
    std::fill(bytes.begin(), bytes.end(), 0);
    const std::size_t newer = sizeof(S) + 16;
    std::memcpy(bytes.data(), &good, sizeof(S));
    std::memcpy(bytes.data(), &newer, sizeof(newer));
    bytes[newer] = 1;  // outside
    EXPECT_EQ(call(reinterpret_cast<const S*>(bytes.data())), SWITCHBACK_OK) << what;
    bytes[newer - 1] = 1;
    expect_refused(call(reinterpret_cast<const S*>(bytes.data())), "does not know; it must be zero",
                   what);
  }

  template <class S>
  struct Bad {
    const char* text;
    std::function<void(S&)> change;
  };
  /// Applies each change to a copy of the valid struct, and expects that the call refuses it with
  /// this text.
  template <class S, class Call>
  void refuses(const S& good, const Call& call, std::initializer_list<Bad<S>> bad) {
    for (const Bad<S>& one : bad) {
      S changed = good;
      one.change(changed);
      expect_refused(call(&changed), one.text, one.text);
    }
  }

  /// A call that creates a layer with these options, and destroys it again.
  template <class Layer, class Options>
  auto creating(switchback_status (*create)(switchback_context*, const Options*, Layer**),
                void (*destroy)(Layer*)) {
    return [=, this](const Options* options) {
      Layer* const before = reinterpret_cast<Layer*>(std::uintptr_t{0x10});
      Layer* out = before;
      const switchback_status status = create(context, options, &out);
      EXPECT_EQ(out == before, status != SWITCHBACK_OK);
      if (status == SWITCHBACK_OK) destroy(out);
      return status;
    };
  }

  const std::int32_t ends[G] = {2, 5};
  const switchback_groups good_groups = groups();
  Owned x{SWITCHBACK_F32, M, K}, weight{SWITCHBACK_F32, N, K}, weights{SWITCHBACK_F32, G*N, K},
      g{SWITCHBACK_F32, M, N}, y{SWITCHBACK_F32, M, N}, dx{SWITCHBACK_F32, M, K},
      dw{SWITCHBACK_F32, N, K}, dws{SWITCHBACK_F32, G*N, K}, db{SWITCHBACK_F32, 1, N},
      dbs{SWITCHBACK_F32, G, N}, selector{SWITCHBACK_F32, G, K / G}, down{SWITCHBACK_F32, R, K},
      up{SWITCHBACK_F32, N, R}, a{SWITCHBACK_S8, M, K}, b{SWITCHBACK_S8, N, K},
      bs{SWITCHBACK_S8, G*N, K}, q{SWITCHBACK_S8, M, K}, q_t{SWITCHBACK_S8, K, M},
      a_t{SWITCHBACK_S8, N, padded}, b_t{SWITCHBACK_S8, K, padded}, s32{SWITCHBACK_S32, M, N},
      slots{SWITCHBACK_S32, M, 2}, scales{SWITCHBACK_F32, 1, 64}, absmax{SWITCHBACK_F32, 1, 64},
      absmax_2{SWITCHBACK_F32, 1, 64}, sums{SWITCHBACK_F32, 1, K};
  switchback_context* context = nullptr;
  switchback_linear* layer = nullptr;
  switchback_linear* blocks = nullptr;
  switchback_linear* grouped = nullptr;
  switchback_fragmented_linear* fragmented = nullptr;
  switchback_packed_weight* packed = nullptr;
};

}  // namespace switchback::test
