// SPDX-License-Identifier: Apache-2.0
// What C lets a caller pass and C++ types rule out: null pointers, structs of another size, numbers
// that no enum or flag has. Each is refused by name, and nothing is written.
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
namespace {

constexpr std::int64_t G = 2, M = 6, K = 16, N = 4, R = 3, block_rows = 128, padded = 128;
constexpr unsigned char mark = 0x5A;

/// A matrix on memory of its own: what no refused call may change.
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

void expect_refused(switchback_status status, std::string_view text, const std::string& what) {
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
    grouped = made(switchback_grouped_linear_create, grouped_options());
    fragmented = made(switchback_fragmented_linear_create, fragmented_options());
    EXPECT_EQ(switchback_packed_weight_create(&packed), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_set_weight(layer, weight, nullptr), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_set_weight(blocks, weight, nullptr), SWITCHBACK_OK);
    EXPECT_EQ(switchback_grouped_linear_set_weight(grouped, weights, nullptr), SWITCHBACK_OK);
    const auto of_fragments = fragmented_weights();
    EXPECT_EQ(switchback_fragmented_linear_set_weights(fragmented, &of_fragments), SWITCHBACK_OK);
  }
  ~Arguments() override {
    switchback_linear_destroy(layer);
    switchback_linear_destroy(blocks);
    switchback_grouped_linear_destroy(grouped);
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

  // Arguments that are right.
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
  static switchback_grouped_linear_options grouped_options() {
    auto options = sized<switchback_grouped_linear_options>();
    options.groups = G;
    options.in_features = K;
    options.out_features = N;
    options.mode = SWITCHBACK_ROWWISE;
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
  switchback_grouped_linear_grads grouped_grads() {
    auto of = sized<switchback_grouped_linear_grads>();
    of.g = g;
    of.dx = dx;
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
  switchback_grouped_gemm_args grouped_gemm(bool of_sums) {
    auto args = sized<switchback_grouped_gemm_args>();
    args.a = a;
    args.b = bs;
    args.d = of_sums ? s32 : y;
    if (!of_sums) args.absmax_a = args.absmax_b = scales.floats();
    if (!of_sums) args.absmax_b_count = G;
    args.groups = groups();
    return args;
  }
  switchback_grouped_gemm_standard_args grouped_standard() {
    auto args = sized<switchback_grouped_gemm_standard_args>();
    args.a = x;
    args.b = weights;
    args.d = y;
    args.transpose_b = 1;
    args.groups = groups();
    return args;
  }

  /// Calls with each pointer in turn null. `names` has a word for each argument; "-" for what is no
  /// pointer or may be null.
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

  /// A struct may have the size of an older version, whatever follows it, or be larger with zeros
  /// at its end; no other size is read.
  template <class S, class Call>
  void accepts_sizes(std::string_view argument, const S& good, std::vector<std::size_t> older,
                     const Call& call) {
    std::vector<unsigned char> bytes(5000);
    const auto with = [&](std::size_t size, std::size_t known) {
      std::fill(bytes.begin(), bytes.end(), 0xFF);
      std::memcpy(bytes.data(), &good, known);
      std::memcpy(bytes.data(), &size, sizeof(size));
      return call(reinterpret_cast<const S*>(bytes.data()));
    };
    const std::string what = std::string(argument) + " of " + std::to_string(sizeof(S)) + " bytes";
    older.push_back(sizeof(S));
    for (const std::size_t size : older)
      EXPECT_EQ(with(size, size), SWITCHBACK_OK)
          << what << ", " << size << ": " << switchback_last_error();
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{9}, sizeof(S) - 1,
                                   std::size_t{4097}, std::numeric_limits<std::size_t>::max()})
      expect_refused(with(size, sizeof(S)), std::string(argument) + " has struct_size = ", what);
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
  /// Each change of a good struct is refused with the text.
  template <class S, class Call>
  void refuses(const S& good, const Call& call, std::initializer_list<Bad<S>> bad) {
    for (const Bad<S>& one : bad) {
      S changed = good;
      one.change(changed);
      expect_refused(call(&changed), one.text, one.text);
    }
  }

  /// Creates and destroys.
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
  switchback_grouped_linear* grouped = nullptr;
  switchback_fragmented_linear* fragmented = nullptr;
  switchback_packed_weight* packed = nullptr;
};

TEST_F(Arguments, NullPointersOfContextsAndOperationsAreNamed) {
  const char* text = nullptr;
  std::int32_t threads = 0;
  std::size_t bytes = 7;
  std::uint64_t fingerprint[2] = {7, 7};
  switchback_tune_counters counters = {};
  switchback_context* none = nullptr;
  switchback_packed_weight* no_pack = nullptr;
  const switchback_engine_info* infos = nullptr;
  refuses_null("- out", switchback_context_create, nullptr, &none);
  refuses_null("context out", switchback_context_device, context, &text);
  refuses_null("context out", switchback_context_isa, context, &text);
  refuses_null("context out", switchback_context_threads, context, &threads);
  refuses_null("context out", switchback_context_workspace_bytes, context, &bytes);
  refuses_null("context out", switchback_context_tune_counters, context, &counters);
  refuses_null("context out", switchback_context_tune_warnings, context, &text);
  refuses_null("context", switchback_context_synchronize, context);
  refuses_null("context -", switchback_context_set_stream, context, nullptr);
  refuses_null("context - out count", switchback_engines, context, 0, &infos, &bytes);

  float* const s = absmax.floats();
  float* const t = absmax_2.floats();
  refuses_null("context x q absmax", switchback_quantize_rowwise, context, x, q, s);
  refuses_null("context g q absmax column_sums -", switchback_quantize_rowwise_column_sums, context,
               x, q, s, sums.floats(), 0);
  refuses_null("context g column_scales q absmax - -", switchback_quantize_rowwise_scaled, context,
               x, scales.floats(), q, s, nullptr, 0);
  refuses_null("context g sums -", switchback_column_sums, context, x, sums.floats(), 0);
  refuses_null("context w q_t absmax", switchback_quantize_columnwise_transpose, context, x, q_t,
               s);
  refuses_null("context x - q_t absmax", switchback_quantize_blockwise_transpose, context, x,
               block_rows, b_t, s);
  refuses_null("context x q absmax_rows - q_t absmax_blocks - -",
               switchback_quantize_rowwise_and_blockwise_transpose, context, x, q, s, block_rows,
               b_t, t, nullptr, 0);
  refuses_null("context w q absmax", switchback_quantize_global, context, x, q, s);
  refuses_null("context w q_t absmax", switchback_quantize_global_transpose, context, x, q_t, s);
  refuses_null("context w q absmax_rows q_t absmax_cols",
               switchback_quantize_rowwise_and_columnwise_transpose, context, x, q, s, q_t, t);
  refuses_null("context w q q_t absmax", switchback_quantize_global_and_transpose, context, x, q,
               q_t, s);
  refuses_null("context q absmax x", switchback_dequantize_rowwise, context, a, scales.floats(),
               dx);
  refuses_null("context x q", switchback_cast_to_int8, context, x, q);
  refuses_null("context x - y", switchback_activation_forward, context, x, SWITCHBACK_GELU_ERF, dx);
  refuses_null("context g x - dx", switchback_activation_backward, context, g, g,
               SWITCHBACK_GELU_ERF, y);
  refuses_null("context x - q absmax -", switchback_activation_forward_quantize, context, x,
               SWITCHBACK_GELU_ERF, q, s, nullptr);
  refuses_null("context g x - dx q absmax - -", switchback_activation_backward_quantize, context, x,
               x, SWITCHBACK_GELU_ERF, dx, q, s, nullptr, 0);
  refuses_null("context x - y", switchback_rotate, context, x, 4, dx);
  refuses_null("context x - - q absmax", switchback_rotate_quantize, context, x, 0, 4, q, s);
  refuses_null("context x out", switchback_fingerprint, context, x, fingerprint);

  refuses_null("out", switchback_packed_weight_create, &no_pack);
  refuses_null("packed out", switchback_packed_weight_bytes, packed, &bytes);
  refuses_null("context b packed -", switchback_pack_weight, context, b, packed, nullptr);
  refuses_null("context b - packed -", switchback_pack_weights, context, bs, G, packed, nullptr);
  refuses_null("context a b d", switchback_gemm_s8s8s32, context, a, b, s32);
  refuses_null("context a packed_b d", switchback_gemm_s8s8s32_packed, context, a, packed, s32);
  const auto args = gemm();
  const auto standard = gemm_standard();
  const auto blockwise = gemm_blockwise();
  const auto of_groups = grouped_gemm(false);
  const auto sums_of_groups = grouped_gemm(true);
  const auto standard_of_groups = grouped_standard();
  refuses_null("context args", switchback_gemm_dequantize, context, &args);
  refuses_null("context args", switchback_gemm_standard, context, &standard);
  refuses_null("context args", switchback_gemm_blockwise, context, &blockwise);
  refuses_null("context args", switchback_grouped_gemm_dequantize, context, &of_groups);
  refuses_null("context args", switchback_grouped_gemm_s8s8s32, context, &sums_of_groups);
  refuses_null("context args", switchback_grouped_gemm_standard, context, &standard_of_groups);
  const auto rows = groups();
  refuses_null("context x groups q absmax", switchback_grouped_quantize_rowwise, context, x, &rows,
               q, s);
  refuses_null("context y slots - out", switchback_combine, context, y, slots, nullptr, g);

  EXPECT_TRUE(bytes == 7 && fingerprint[0] == 7 && fingerprint[1] == 7 && threads == 0);
  EXPECT_TRUE(none == nullptr && no_pack == nullptr && infos == nullptr && text == nullptr);
  for (const Owned* output : {&q, &q_t, &b_t, &y, &dx, &s32, &g, &absmax, &absmax_2, &sums})
    EXPECT_TRUE(output->untouched());
}

TEST_F(Arguments, NullPointersOfLayersAreNamed) {
  std::size_t bytes = 7;
  std::int32_t forward_mode = 7, dx_mode = 7;
  float* const s = absmax.floats();
  const auto options = layer_options();
  const auto of_layer = grads();
  switchback_linear* none = nullptr;
  refuses_null("context options out", switchback_linear_create, context, &options, &none);
  refuses_null("linear context out", switchback_linear_share, layer, context, &none);
  refuses_null("linear weight -", switchback_linear_set_weight, layer, weight, nullptr);
  refuses_null("linear codes absmax - -", switchback_linear_set_quantized_weight, layer, b,
               scales.floats(), N, nullptr);
  refuses_null("linear", switchback_linear_weight_updated, layer);
  refuses_null("linear", switchback_linear_weight_may_have_changed, layer);
  refuses_null("linear - - forward dx", switchback_linear_pass_modes, layer, M, 0, &forward_mode,
               &dx_mode);
  refuses_null("linear x y -", switchback_linear_forward, layer, x, y, 0);
  refuses_null("linear x y codes absmax", switchback_linear_forward_codes, layer, x, y, q, s);
  refuses_null("linear x y codes_t -", switchback_linear_forward_block_codes, blocks, x, y, b_t, s);
  refuses_null("linear grads", switchback_linear_backward, layer, &of_layer);
  refuses_null("linear grads - -", switchback_linear_backward_from, layer, &of_layer, x, nullptr);
  refuses_null("linear grads codes_t -", switchback_linear_backward_from_blocks, blocks, &of_layer,
               b_t, s);
  refuses_null("linear out", switchback_linear_saved_for_backward_bytes, layer, &bytes);
  refuses_null("linear out", switchback_linear_cached_weight_bytes, layer, &bytes);
  refuses_null("linear", switchback_linear_prepare_for_eval, layer);
  EXPECT_EQ(switchback_linear_prepare_for_eval(layer), SWITCHBACK_OK);
  refuses_null("linear codes absmax -", switchback_linear_quantized_weight, layer, b, s, N);

  const auto rows = groups();
  const auto of_groups = grouped_options();
  const auto grads_of_groups = grouped_grads();
  switchback_grouped_linear* no_groups = nullptr;
  refuses_null("context options out", switchback_grouped_linear_create, context, &of_groups,
               &no_groups);
  refuses_null("linear weight -", switchback_grouped_linear_set_weight, grouped, weights, nullptr);
  refuses_null("linear", switchback_grouped_linear_weight_updated, grouped);
  refuses_null("linear", switchback_grouped_linear_weight_may_have_changed, grouped);
  refuses_null("linear", switchback_grouped_linear_prepare_for_eval, grouped);
  refuses_null("linear groups x y -", switchback_grouped_linear_forward, grouped, &rows, x, y, 0);
  refuses_null("linear grads", switchback_grouped_linear_backward, grouped, &grads_of_groups);
  refuses_null("linear grads groups -", switchback_grouped_linear_backward_from, grouped,
               &grads_of_groups, &rows, x);
  refuses_null("linear out", switchback_grouped_linear_saved_for_backward_bytes, grouped, &bytes);
  refuses_null("linear out", switchback_grouped_linear_cached_weight_bytes, grouped, &bytes);

  const auto of_fragments = fragmented_options();
  const auto parts = fragmented_weights();
  const auto grads_of_fragments = fragmented_grads();
  switchback_fragmented_linear* no_fragments = nullptr;
  refuses_null("context options out", switchback_fragmented_linear_create, context, &of_fragments,
               &no_fragments);
  refuses_null("linear weights", switchback_fragmented_linear_set_weights, fragmented, &parts);
  refuses_null("linear", switchback_fragmented_linear_weights_updated, fragmented);
  refuses_null("linear", switchback_fragmented_linear_prepare_for_eval, fragmented);
  refuses_null("linear x y -", switchback_fragmented_linear_forward, fragmented, x, y, 0);
  refuses_null("linear x y", switchback_fragmented_linear_forward_hard, fragmented, x, y);
  refuses_null("linear grads", switchback_fragmented_linear_backward, fragmented,
               &grads_of_fragments);
  refuses_null("linear grads x", switchback_fragmented_linear_backward_from, fragmented,
               &grads_of_fragments, x);
  refuses_null("linear out", switchback_fragmented_linear_saved_for_backward_bytes, fragmented,
               &bytes);
  refuses_null("linear out", switchback_fragmented_linear_cached_weight_bytes, fragmented, &bytes);

  EXPECT_TRUE(none == nullptr && no_groups == nullptr && no_fragments == nullptr);
  EXPECT_TRUE(bytes == 7 && forward_mode == 7 && dx_mode == 7);
  for (const Owned* output : {&y, &dx, &dw, &db, &dws, &dbs, &q, &b_t, &absmax})
    EXPECT_TRUE(output->untouched());
  // What may be destroyed may be null.
  switchback_context_destroy(nullptr);
  switchback_packed_weight_destroy(nullptr);
  switchback_linear_destroy(nullptr);
  switchback_grouped_linear_destroy(nullptr);
  switchback_fragmented_linear_destroy(nullptr);
}

TEST_F(Arguments, StructsMayBeOlderOrNewer) {
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = 1;
  accepts_sizes(
      "options", options,
      {offsetof(switchback_context_options, isa), offsetof(switchback_context_options, allocate),
       offsetof(switchback_context_options, tune)},
      [](const switchback_context_options* given) {
        switchback_context* made = nullptr;
        const switchback_status status = switchback_context_create(given, &made);
        switchback_context_destroy(made);
        return status;
      });
  accepts_sizes(
      "options", layer_options(),
      {offsetof(switchback_linear_options, allow), offsetof(switchback_linear_options, activation),
       offsetof(switchback_linear_options, dw), offsetof(switchback_linear_options, rotation),
       offsetof(switchback_linear_options, transposed_weight)},
      creating(switchback_linear_create, switchback_linear_destroy));
  accepts_sizes("options", grouped_options(), {},
                creating(switchback_grouped_linear_create, switchback_grouped_linear_destroy));
  accepts_sizes(
      "options", fragmented_options(), {},
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy));
  const auto on = [](auto* object, auto function) {
    return [=](const auto* given) { return function(object, given); };
  };
  accepts_sizes("args", gemm(), {offsetof(switchback_gemm_args, packed_b)},
                on(context, switchback_gemm_dequantize));
  accepts_sizes("args", gemm_standard(), {}, on(context, switchback_gemm_standard));
  accepts_sizes("args", gemm_blockwise(), {offsetof(switchback_gemm_blockwise_args, m)},
                on(context, switchback_gemm_blockwise));
  accepts_sizes("args", grouped_gemm(false), {}, on(context, switchback_grouped_gemm_dequantize));
  accepts_sizes("args", grouped_gemm(true), {}, on(context, switchback_grouped_gemm_s8s8s32));
  accepts_sizes("args", grouped_standard(), {}, on(context, switchback_grouped_gemm_standard));
  accepts_sizes("weights", fragmented_weights(), {},
                on(fragmented, switchback_fragmented_linear_set_weights));
  accepts_sizes("groups", groups(), {}, [this](const switchback_groups* given) {
    return switchback_grouped_quantize_rowwise(context, x, given, q, absmax.floats());
  });
  accepts_sizes(
      "grads", grads(),
      {offsetof(switchback_linear_grads, y), offsetof(switchback_linear_grads, stochastic)},
      [this](const switchback_linear_grads* given) {
        return switchback_linear_backward_from(layer, given, x, nullptr);
      });
  const auto rows = groups();
  accepts_sizes("grads", grouped_grads(), {}, [&](const switchback_grouped_linear_grads* given) {
    return switchback_grouped_linear_backward_from(grouped, given, &rows, x);
  });
  accepts_sizes("grads", fragmented_grads(), {},
                [this](const switchback_fragmented_linear_grads* given) {
                  return switchback_fragmented_linear_backward_from(fragmented, given, x);
                });
}

TEST_F(Arguments, NumbersThatNothingHasAreNamed) {
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = 1;
  using Context = switchback_context_options;
  refuses<Context>(options,
                   [](const Context* given) {
                     switchback_context* made = nullptr;
                     return switchback_context_create(given, &made);
                   },
                   {{"'tpu' is not one of cpu, cuda", [](Context& o) { o.device = "tpu"; }},
                    {"threads = -1", [](Context& o) { o.threads = -1; }},
                    {"'avx9' is not one of", [](Context& o) { o.isa = "avx9"; }},
                    {"stream is not null", [](Context& o) { o.stream = &o; }},
                    {"an allocator is given; a cpu context",
                     [](Context& o) {
                       o.allocate = [](void*, std::size_t, void*) -> void* { return nullptr; };
                     }},
                    {"tuner: mode 'sometimes' is not one of off, read, record, tune, require",
                     [](Context& o) { o.tune = "sometimes"; }}});
  using Linear = switchback_linear_options;
  refuses<Linear>(layer_options(), creating(switchback_linear_create, switchback_linear_destroy),
                  {{"mode = 6", [](Linear& o) { o.mode = 6; }},
                   {"mode = -1", [](Linear& o) { o.mode = -1; }},
                   {"dtype = 3", [](Linear& o) { o.dtype = SWITCHBACK_S8; }},
                   {"in_features = -1", [](Linear& o) { o.in_features = -1; }},
                   {"out_features = -5", [](Linear& o) { o.out_features = -5; }},
                   {"no_such", [](Linear& o) { o.engine = "no_such"; }},
                   {"linear: activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
                    [](Linear& o) { o.activation = 3; }},
                   {"overlap_dw = 3; it must be 0 or 1", [](Linear& o) { o.overlap_dw = 3; }},
                   {"dw = 7", [](Linear& o) { o.dw = 7; }},
                   {"linear: rotation = 8; it must be one of hadamard_4 (4)",
                    [](Linear& o) { o.rotation = 8; }},
                   {"transposed_weight = 2", [](Linear& o) { o.transposed_weight = 2; }},
                   {"allow = 8",
                    [](Linear& o) {
                      o.mode = SWITCHBACK_AUTO;
                      o.allow = 1u << SWITCHBACK_GLOBAL_MEM_EFFICIENT;
                    }},
                   {"dw_block_rows = 100", [](Linear& o) {
                      o.dw = SWITCHBACK_DW_INT8_BLOCK;
                      o.dw_block_rows = 100;
                    }}});
  using Grouped = switchback_grouped_linear_options;
  refuses<Grouped>(grouped_options(),
                   creating(switchback_grouped_linear_create, switchback_grouped_linear_destroy),
                   {{"groups = 0", [](Grouped& o) { o.groups = 0; }},
                    {"in_features = -1", [](Grouped& o) { o.in_features = -1; }},
                    {"out_features = -1", [](Grouped& o) { o.out_features = -1; }},
                    {"mode = 6", [](Grouped& o) { o.mode = 6; }},
                    {"dtype = 3", [](Grouped& o) { o.dtype = SWITCHBACK_S8; }},
                    {"no_such", [](Grouped& o) { o.engine = "no_such"; }}});
  using Fragmented = switchback_fragmented_linear_options;
  refuses<Fragmented>(
      fragmented_options(),
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy),
      {{"in_features = -1", [](Fragmented& o) { o.in_features = -1; }},
       {"out_features = -1", [](Fragmented& o) { o.out_features = -1; }},
       {"fragments = 3", [](Fragmented& o) { o.fragments = 3; }},
       {"rank = -1", [](Fragmented& o) { o.rank = -1; }},
       {"mode = 9", [](Fragmented& o) { o.mode = 9; }},
       {"dtype = 3", [](Fragmented& o) { o.dtype = SWITCHBACK_S8; }},
       {"no_such", [](Fragmented& o) { o.engine = "no_such"; }}});
  using Grads = switchback_linear_grads;
  refuses<Grads>(
      grads(),
      [this](const Grads* given) {
        return switchback_linear_backward_from(layer, given, x, nullptr);
      },
      {{"accumulate = 9", [](Grads& o) { o.accumulate = 9; }},
       {"dx_of_activation = 2; it must be 0 or 1", [](Grads& o) { o.dx_of_activation = 2; }},
       {"y_activation = 5", [](Grads& o) { o.y_activation = 5; }},
       {"stochastic = 2", [](Grads& o) { o.stochastic = 2; }},
       {"g has dtype 50", [](Grads& o) { o.g.dtype = 50; }},
       {"g is [6,3]", [](Grads& o) { o.g.cols = 3; }},
       {"dx is [6,15]", [](Grads& o) { o.dx.cols = 15; }},
       {"dw is [3,16]", [](Grads& o) { o.dw.rows = 3; }},
       {"db", [](Grads& o) { o.db.cols = 3; }}});
  using GroupedGrads = switchback_grouped_linear_grads;
  const auto rows = groups();
  refuses<GroupedGrads>(grouped_grads(),
                        [&](const GroupedGrads* given) {
                          return switchback_grouped_linear_backward_from(grouped, given, &rows, x);
                        },
                        {{"accumulate = 2", [](GroupedGrads& o) { o.accumulate = 2; }},
                         {"db", [](GroupedGrads& o) { o.db.rows = 1; }}});
  using FragmentedGrads = switchback_fragmented_linear_grads;
  refuses<FragmentedGrads>(fragmented_grads(),
                           [this](const FragmentedGrads* given) {
                             return switchback_fragmented_linear_backward_from(fragmented, given,
                                                                               x);
                           },
                           {{"accumulate = 2", [](FragmentedGrads& o) { o.accumulate = 2; }},
                            {"dweight", [](FragmentedGrads& o) { o.dweight.rows = 3; }}});
  using Gemm = switchback_gemm_args;
  refuses<Gemm>(gemm(),
                [this](const Gemm* given) { return switchback_gemm_dequantize(context, given); },
                {{"absmax_b_count = 5", [](Gemm& o) { o.absmax_b_count = 5; }},
                 {"absmax_b_count", [](Gemm& o) { o.absmax_b_count = INT64_MIN; }},
                 {"absmax_a is a null", [](Gemm& o) { o.absmax_a = nullptr; }},
                 {"absmax_b is a null", [](Gemm& o) { o.absmax_b = nullptr; }},
                 {"d has dtype s32", [](Gemm& o) { o.d.dtype = SWITCHBACK_S32; }},
                 {"bias has dtype 17",
                  [](Gemm& o) {
                    o.bias = o.absmax_a;
                    o.bias_dtype = 17;
                  }},
                 {"no_such", [](Gemm& o) { o.engine = "no_such"; }},
                 {"b and packed_b are both given", [this](Gemm& o) { o.packed_b = packed; }}});
  using Standard = switchback_gemm_standard_args;
  refuses<Standard>(
      gemm_standard(),
      [this](const Standard* given) { return switchback_gemm_standard(context, given); },
      {{"transpose_a = 2", [](Standard& o) { o.transpose_a = 2; }},
       {"transpose_b = -1", [](Standard& o) { o.transpose_b = -1; }},
       {"accumulate = 3", [](Standard& o) { o.accumulate = 3; }},
       {"bias has dtype 5",
        [](Standard& o) {
          o.bias = o.a.data;
          o.bias_dtype = 5;
        }},
       {"no_such", [](Standard& o) { o.engine = "no_such"; }}});
  using Blockwise = switchback_gemm_blockwise_args;
  refuses<Blockwise>(
      gemm_blockwise(),
      [this](const Blockwise* given) { return switchback_gemm_blockwise(context, given); },
      {{"block_rows = 0", [](Blockwise& o) { o.block_rows = 0; }},
       {"accumulate = 2", [](Blockwise& o) { o.accumulate = 2; }},
       {"absmax_b is a null", [](Blockwise& o) { o.absmax_b = nullptr; }},
       {"m = -1", [](Blockwise& o) { o.m = -1; }},
       {"m = 129", [](Blockwise& o) { o.m = padded + 1; }},
       {"no_such", [](Blockwise& o) { o.engine = "no_such"; }}});
  using GroupedGemm = switchback_grouped_gemm_args;
  refuses<GroupedGemm>(
      grouped_gemm(false),
      [this](const GroupedGemm* given) {
        return switchback_grouped_gemm_dequantize(context, given);
      },
      {{"groups has struct_size", [](GroupedGemm& o) { o.groups.struct_size += 8; }},
       {"absmax_b_count = 3", [](GroupedGemm& o) { o.absmax_b_count = 3; }},
       {"bias has dtype 9",
        [](GroupedGemm& o) {
          o.bias = o.absmax_a;
          o.bias_dtype = 9;
        }},
       {"d_column_stride", [](GroupedGemm& o) { o.d_column_stride = N; }},
       {"no_such", [](GroupedGemm& o) { o.engine = "no_such"; }},
       {"d has dtype s32", [](GroupedGemm& o) { o.d.dtype = SWITCHBACK_S32; }},
       {"b and packed_b are both given", [this](GroupedGemm& o) { o.packed_b = packed; }}});
  refuses<GroupedGemm>(
      grouped_gemm(true),
      [this](const GroupedGemm* given) { return switchback_grouped_gemm_s8s8s32(context, given); },
      {{"d has dtype f32", [](GroupedGemm& o) { o.d.dtype = SWITCHBACK_F32; }},
       {"the int32 sums take none", [this](GroupedGemm& o) { o.absmax_a = scales.floats(); }}});
  using GroupedStandard = switchback_grouped_gemm_standard_args;
  refuses<GroupedStandard>(
      grouped_standard(),
      [this](const GroupedStandard* given) {
        return switchback_grouped_gemm_standard(context, given);
      },
      {{"groups has struct_size", [](GroupedStandard& o) { o.groups.struct_size = 0; }},
       {"transpose_a = 2", [](GroupedStandard& o) { o.transpose_a = 2; }},
       {"transpose_b = 3", [](GroupedStandard& o) { o.transpose_b = 3; }},
       {"accumulate = 5", [](GroupedStandard& o) { o.accumulate = 5; }},
       {"bias", [](GroupedStandard& o) {
          o.bias = o.a.data;
          o.bias_dtype = 9;
        }}});
  using Groups = switchback_groups;
  refuses<Groups>(
      groups(),
      [this](const Groups* given) {
        return switchback_grouped_quantize_rowwise(context, x, given, q, absmax.floats());
      },
      {{"groups.count = -1", [](Groups& o) { o.count = -1; }},
       {"groups.on_device = 2", [](Groups& o) { o.on_device = 2; }},
       {"packed groups have ends alone", [](Groups& o) { o.row_stride = 3; }},
       {"groups.used[1] = 5",
        [](Groups& o) {
          o.rows_of = std::exchange(o.ends, nullptr);
          o.row_stride = M / G;
        }},
       {"x.index[0] = 1515870810",  // the mark
        [this](Groups& o) { o.row_index = reinterpret_cast<std::int32_t*>(scales.floats()); }},
       {"column_stride = -1", [](Groups& o) { o.column_stride = -1; }}});
  for (const Owned* output : {&y, &dx, &dw, &db, &dws, &dbs, &q, &s32, &absmax})
    EXPECT_TRUE(output->untouched());
}

TEST_F(Arguments, NumbersOutsideOfStructsAreNamed) {
  float* const s = absmax.floats();
  const switchback_engine_info* infos = nullptr;
  std::size_t count = 77;
  std::int32_t mode = 7;
  Owned wrong(9, M, K);
  const std::vector<std::pair<const char*, std::function<switchback_status()>>> calls = {
      {"operation = 4", [&] { return switchback_engines(context, 4, &infos, &count); }},
      {"operation = -1", [&] { return switchback_engines(context, -1, &infos, &count); }},
      {"no stream", [&] { return switchback_context_set_stream(context, &count); }},
      {"x has dtype 9", [&] { return switchback_quantize_rowwise(context, wrong, q, s); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_quantize_rowwise(context, x, dx, s); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_dequantize_rowwise(context, x, scales.floats(), dx); }},
      {"accumulate = -1", [&] { return switchback_column_sums(context, x, sums.floats(), -1); }},
      {"accumulate = 2",
       [&] { return switchback_quantize_rowwise_column_sums(context, x, q, s, sums.floats(), 2); }},
      {"block_rows = 1",
       [&] { return switchback_quantize_blockwise_transpose(context, x, 1, b_t, s); }},
      {"activation_forward: activation = 7; it must be gelu_tanh (1) or gelu_erf (2)",
       [&] { return switchback_activation_forward(context, x, 7, dx); }},
      {"rotate: rotation = 0; it must be one of hadamard_4 (4), hadamard_16 (16)",
       [&] { return switchback_rotate(context, x, 0, dx); }},
      {"activation = 7", [&] { return switchback_rotate_quantize(context, x, 7, 4, q, s); }},
      {"d has dtype f32; it must be s32",
       [&] { return switchback_gemm_s8s8s32(context, a, b, y); }},
      {"no_such", [&] { return switchback_pack_weight(context, b, packed, "no_such"); }},
      {"no_such", [&] { return switchback_pack_weights(context, bs, G, packed, "no_such"); }},
      {"groups = 0", [&] { return switchback_pack_weights(context, bs, 0, packed, nullptr); }},
      {"slots has dtype f32", [&] { return switchback_combine(context, y, g, nullptr, g); }},
      {"save_for_backward = 4", [&] { return switchback_linear_forward(layer, x, y, 4); }},
      {"save_for_backward = -1", [&] { return switchback_linear_forward(layer, x, y, -1); }},
      {"save_for_backward = 4",
       [&] { return switchback_fragmented_linear_forward(fragmented, x, y, 4); }},
      {"rows = -1", [&] { return switchback_linear_pass_modes(layer, -1, 1, &mode, &mode); }},
      {"save_for_backward = 7",
       [&] { return switchback_linear_pass_modes(layer, 2, 7, &mode, &mode); }},
      {"bias has dtype 9",
       [&] {
         const Owned bias(9, 1, N);
         return switchback_linear_set_weight(layer, weight, bias);
       }},
      {"absmax_count = -1",
       [&] {
         return switchback_linear_set_quantized_weight(layer, b, scales.floats(), -1, nullptr);
       }},
      {"codes has dtype f32",
       [&] {
         return switchback_linear_set_quantized_weight(layer, weight, scales.floats(), N, nullptr);
       }},
      {"absmax_count = -1", [&] { return switchback_linear_quantized_weight(layer, b, s, -1); }},
      {"codes has dtype f32", [&] { return switchback_linear_quantized_weight(layer, dw, s, N); }}};
  for (const auto& [text, call] : calls)
    expect_refused(call(), text, text);
  const auto rows = groups();
  expect_refused(switchback_grouped_linear_forward(grouped, &rows, x, y, 4),
                 "save_for_backward = 4", "");
  EXPECT_TRUE(infos == nullptr && count == 77 && mode == 7);
  for (const Owned* output : {&y, &dx, &dw, &q, &b_t, &s32, &sums, &absmax})
    EXPECT_TRUE(output->untouched());
}

}  // namespace
}  // namespace switchback::test
