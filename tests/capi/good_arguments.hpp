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
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/calls.hpp"
#include "switchback/switchback.h"

namespace switchback::test {

inline void expect_refused(switchback_status status, std::string_view text,
                           const std::string& what) {
  EXPECT_EQ(status, SWITCHBACK_INVALID_ARGUMENT) << what;
  const std::string_view error = switchback_last_error();
  EXPECT_NE(error.find(text), std::string_view::npos)
      << what << " wants \"" << text << "\": " << error;
}

class Arguments : public ::testing::Test {
 protected:
  Arguments() { expect_ok(switchback_packed_weight_create(&w.packed)); }

  /// The present bytes of all outputs.
  [[nodiscard]] Bytes written() const {
    Bytes all = w.written();
    for (const World* other : {&w_blocks, &w_groups})
      for (const std::byte byte : other->written())
        all.push_back(byte);
    return all;
  }
  switchback_quantize_args codes_of_rows() {
    auto args = switchback_quantize_args_of(&x);
    args.q = q;
    args.absmax = absmax;
    return args;
  }
  static switchback_kept_input kept_of(const switchback_matrix& x, float* absmax, bool in_blocks) {
    auto kept = sized<switchback_kept_input>();
    kept.x = x;
    kept.absmax = absmax;
    kept.in_blocks = in_blocks ? 1 : 0;
    return kept;
  }

  /// Calls f with one null pointer at a time, and expects that it is refused. `names` has a word
  /// for each argument: "-" if it is not a pointer or may be null.
  template <class... P>
  void refuses_null(const std::string& names, switchback_status (*f)(P...),
                    std::type_identity_t<P>... good) {
    std::istringstream split(names);
    const std::vector<std::string> words{std::istream_iterator<std::string>(split), {}};
    ASSERT_EQ(words.size(), sizeof...(P)) << names;
    const auto with_null = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
      std::tuple<P...> arguments(good...);
      if constexpr (std::is_pointer_v<std::tuple_element_t<at, std::tuple<P...>>>) {
        if (words[at] == "-") return;
        std::get<at>(arguments) = nullptr;
        expect_refused(std::apply(f, arguments), words[at] + " is a null pointer", names);
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
    const std::string what = std::string(argument) + " of " + std::to_string(sizeof(S)) + " bytes";
    // Calls with the struct in memory whose other bytes have this value.
    std::vector<unsigned char> bytes(5000);
    const auto with = [&](std::size_t size, unsigned char rest, std::size_t nonzero_at) {
      std::fill(bytes.begin(), bytes.end(), rest);
      std::memcpy(bytes.data(), &good, sizeof(S));
      std::memcpy(bytes.data(), &size, sizeof(size));
      bytes[nonzero_at] = 1;
      return call(reinterpret_cast<const S*>(bytes.data()));
    };
    EXPECT_EQ(with(sizeof(S), 0xFF, 4999), SWITCHBACK_OK) << what << switchback_last_error();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{9}, sizeof(S) - 1,
                                   std::size_t{4097}, std::numeric_limits<std::size_t>::max()})
      expect_refused(with(size, 0xFF, 4999), std::string(argument) + " has struct_size = ", what);
    const std::size_t newer = sizeof(S) + 16;
    EXPECT_EQ(with(newer, 0, newer), SWITCHBACK_OK) << what;  // the byte is outside
    expect_refused(with(newer, 0, newer - 1), "does not know; it must be zero", what);
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
      const switchback_status status = create(w.context, options, &out);
      EXPECT_EQ(out == before, status != SWITCHBACK_OK);
      if (status == SWITCHBACK_OK) destroy(out);
      return status;
    };
  }

  // There is a World for each linear layer.
  World w{1}, w_blocks{1}, w_groups{1};
  const LayerCalls layer{w, {}, false};
  const LayerCalls blocks{w_blocks, {.dw = SWITCHBACK_DW_INT8_BLOCK}, false};
  const LayerCalls grouped{w_groups, {}, true};
  const FragmentedCalls fragmented{w, SWITCHBACK_ROWWISE};
  static constexpr std::int64_t M = 20, K = LayerCalls::K, N = LayerCalls::N;
  switchback_context* const context = w.context;
  const switchback_matrix x = layer.x, y = layer.y;
  const switchback_matrix q = w.output(SWITCHBACK_S8, M, K), q_t = w.output(SWITCHBACK_S8, K, M);
  const switchback_matrix codes_of_blocks = w.output(SWITCHBACK_S8, K, 256);
  const switchback_matrix weight_codes = w.input(SWITCHBACK_S8, N, K);
  float* const scales = w.scales(N);
  float* const absmax = w.floats(2 * K);
  const switchback_linear_grads grads = layer.gradients(true, true);
  const switchback_linear_grads block_grads = blocks.gradients(true, true);
  const switchback_linear_grads grouped_grads = grouped.gradients(true, false);
  const switchback_fragmented_linear_grads fragmented_grads = fragmented.gradients(true);
  // The input as the caller keeps it between forward and backward.
  const switchback_kept_input kept_x = kept_of(x, nullptr, false);
  const switchback_kept_input kept_codes = kept_of(q, absmax, false);
  const switchback_kept_input kept_blocks = kept_of(codes_of_blocks, absmax, true);
};

}  // namespace switchback::test
