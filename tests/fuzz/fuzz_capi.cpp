// SPDX-License-Identifier: Apache-2.0
// The input's bytes drive sequences of C ABI calls with every kind of operand. Required: no crash
// and no sanitizer report, a known status, and right int32 sums. Failed calls change nothing;
// successful ones change only their outputs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "fuzz/draws.hpp"
#include "fuzz/guarded.hpp"
#include "fuzz/input.hpp"
#include "switchback/switchback.h"
#include "switchback/types.hpp"

namespace switchback::test {
namespace {

class Session : private Draws {
 public:
  explicit Session(Input& input) : Draws(input) { create_context(); }
  ~Session() {
    // Context and layer may be destroyed in either order: a layer keeps everything that it needs of
    // its context.
    const bool context_first = input_.below(2) == 1;
    if (context_first) switchback_context_destroy(context_);
    switchback_linear_destroy(layer_);
    if (!context_first) switchback_context_destroy(context_);
    switchback_packed_weight_destroy(packed_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void run() {
    if (context_ == nullptr) return;
    for (int calls = 0; calls < 12 && !input_.empty(); ++calls)
      one_call();
  }

 private:
  void create_context();
  void one_call();
  void quantize(int which);
  void fingerprint(const switchback_matrix* x);
  void activation(bool backward);
  void pack();
  void gemm_int32(bool packed);
  void gemm_dequantize();
  void gemm_standard();
  void blockwise();
  void create_layer();
  void set_weight();
  void weight_updated();
  void prepare_for_eval();
  void forward();
  void forward_codes();
  void set_quantized_weight();
  void backward(bool from_kept);

  switchback_packed_weight* packed_ = nullptr;
  std::int64_t packed_n_ = 0, packed_k_ = 0;

  switchback_linear* layer_ = nullptr;
  std::int64_t layer_n_ = 0, layer_k_ = 0, saved_rows_ = 0;
  std::int32_t layer_type_ = SWITCHBACK_F32, layer_mode_ = SWITCHBACK_STANDARD;
  bool weight_is_gone_ = false;             // weight_ was freed after prepare_for_eval
  SharedBlock weight_, bias_, borrowed_x_;  // memory that the layer borrows
};

void Session::create_context() {
  switchback_context_options options = {};
  constexpr const char* devices[] = {"cpu", nullptr, "", "cuda:0", "cpu0"};
  constexpr const char* levels[] = {nullptr, "scalar", "avx2", "avx512_vnni", "sse5"};
  options.device = input_.rarely(20) ? devices[input_.below(5)] : "cpu";
  options.threads = input_.rarely(20) ? -input_.below(3) : 1 + input_.below(2);
  options.isa = levels[input_.below(5) % (input_.rarely(10) ? 5 : 4)];
  const SizedStruct<switchback_context_options> sized(input_, options);
  const switchback_status status =
      switchback_context_create(input_.rarely(50) ? nullptr : sized.get(), &context_);
  FUZZ_REQUIRE(status >= 0 && status < SWITCHBACK_INTERNAL, "context: status %d", status);
  FUZZ_REQUIRE((status == SWITCHBACK_OK) == (context_ != nullptr), "context: status %d", status);
}

// Calls one of the quantize operations. Sometimes it asks for any combination of their results.
void Session::quantize(int which) {
  Operands operands(input_);
  const std::int64_t m = size(), n = size();
  const auto x = operands.matrix(float_type(), m, n, which == 7 ? Access::write : Access::read);
  const auto q = operands.matrix(SWITCHBACK_S8, m, n, which == 7 ? Access::read : Access::write);
  const auto q_t = operands.matrix(SWITCHBACK_S8, n, m, Access::write);
  // The arrays of scales and sums are as long as the longest one that the library may use,
  // whichever operand it takes the length from.
  const std::int64_t most = std::max(m, n) + 1;
  float* rows = operands.floats(most, which == 7 ? Access::read : Access::write);
  float* cols = operands.floats(most, Access::write);
  const auto* px = Operands::pointer(input_, x);
  const auto* pq = Operands::pointer(input_, q);
  const auto* pq_t = Operands::pointer(input_, q_t);
  switchback_quantize_args args = switchback_quantize_args_of(px);
  args.accumulate = flag();
  const bool wants_q = which <= 1 || which == 3 || which == 5 || which == 6 || which > 8;
  const bool wants_q_t = which == 2 || (which >= 4 && which <= 6);
  if (wants_q && pq != nullptr) args.q = *pq;
  if (wants_q && which <= 8) args.absmax = rows;
  if (wants_q_t && pq_t != nullptr) args.q_t = *pq_t;
  if (which == 2 || which == 5) args.absmax_t = cols;
  if (which == 4) args.absmax_t = rows;
  if (which == 3 || which == 6) args.q_scale = SWITCHBACK_SCALE_GLOBAL;
  if (which == 4 || which == 6) args.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
  if (which > 8) args.q_scale = SWITCHBACK_SCALE_NONE;
  if (which == 1 || which == 8) args.column_sums = cols;
  if (input_.rarely(20)) {
    const int added = input_.byte();
    if (added & 1) args.q_scale = added >> 5;
    if (added & 2) args.q_t_scale = added >> 6;
    if (added & 4) args.column_sums = cols;
    if (added & 8) args.stochastic = 1;
    if (added & 16) args.rotation = 4;
  }
  const SizedStruct<switchback_quantize_args> sized(input_, args);
  operands.remember();
  operands.check(which == 7 ? switchback_dequantize_rowwise(context(), pq, rows, px)
                            : switchback_quantize(context(), sized.get()),
                 "quantize");
  fingerprint(px);
}

// Fuzzes the fingerprint of a matrix. It draws nothing from the input, so that the meaning of
// committed inputs does not change.
void Session::fingerprint(const switchback_matrix* x) {
  std::uint64_t first[2] = {1, 2};
  std::uint64_t second[2] = {1, 2};
  const switchback_status s = switchback_fingerprint(context_, x, first);
  FUZZ_REQUIRE(s == SWITCHBACK_OK || s == SWITCHBACK_INVALID_ARGUMENT, "fingerprint: status %d", s);
  FUZZ_REQUIRE(switchback_fingerprint(context_, x, second) == s, "fingerprint: another status");
  FUZZ_REQUIRE(std::memcmp(first, second, sizeof(first)) == 0, "fingerprint: another value");
  FUZZ_REQUIRE(s == SWITCHBACK_OK || (first[0] == 1 && first[1] == 2), "fingerprint: wrote");
}

void Session::activation(bool backward) {
  Operands operands(input_);
  const std::int64_t m = size(), n = size();
  const std::int32_t type = float_type();
  const auto x = operands.matrix(type, m, n, Access::read);
  const auto g = operands.matrix(input_.rarely(5) ? float_type() : type, m, n, Access::read);
  const auto y = operands.matrix(g.dtype, m, n, Access::write);
  const auto q = operands.matrix(SWITCHBACK_S8, m, n, Access::write);
  const std::int64_t most = std::max(m, n) + 1;
  float* absmax = operands.floats(most, Access::write);
  float* sums = operands.floats(most, Access::write);
  const auto* px = Operands::pointer(input_, x);
  const auto* pg = Operands::pointer(input_, g);
  const auto* py = Operands::pointer(input_, y);
  const auto* pq = Operands::pointer(input_, q);
  const std::int32_t which = input_.rarely(20) ? input_.below(9) - 4 : 1 + input_.below(2);
  const bool quantized = input_.below(2) == 1;
  const std::int32_t accumulate = flag();
  // Three values of `which` that are not activations select a rotation instead.
  const std::int32_t rotation = which == 4 ? 16 : which == -4 ? 4 : which == 3 ? -1 : 0;
  switchback_quantize_args args = switchback_quantize_args_of(px);
  args.rotation = rotation;
  if (rotation == 0 || (quantized && backward)) args.activation = which;
  if (rotation == 0 && backward && pg != nullptr) args.g = *pg;
  if (quantized && pq != nullptr) args.q = *pq;
  if (quantized) args.absmax = absmax;
  if (py != nullptr && rotation == 0) args.value = *py;
  if (py != nullptr && rotation != 0 && !quantized) args.rotated = *py;
  if (rotation == 0 && backward && quantized && accumulate == 1) args.column_sums = sums;
  args.accumulate = accumulate;
  operands.remember();
  operands.check(switchback_quantize(context(), &args), rotation != 0 ? "rotation" : "activation");
}

void Session::pack() {
  Operands operands(input_);
  if (packed_ == nullptr)
    FUZZ_REQUIRE(switchback_packed_weight_create(&packed_) == SWITCHBACK_OK, "no pack");
  const auto b = operands.matrix(SWITCHBACK_S8, size(), size(), Access::read);
  const auto* pb = Operands::pointer(input_, b);
  operands.remember();
  const switchback_status status =
      switchback_pack_weight(context(), pb, 1, packed_, engine(SWITCHBACK_ENGINES_GEMM));
  operands.check(status, "pack_weight");
  if (status == SWITCHBACK_OK) {
    packed_n_ = b.rows;
    packed_k_ = b.cols;
  }
}

std::int32_t sum_of(const switchback_matrix& a, const switchback_matrix& b, std::int64_t r,
                    std::int64_t c) {
  const auto* pa = static_cast<const std::int8_t*>(a.data) + r * a.stride;
  const auto* pb = static_cast<const std::int8_t*>(b.data) + c * b.stride;
  std::int32_t sum = 0;
  for (std::int64_t k = 0; k < a.cols; ++k)
    sum += pa[k] * pb[k];
  return sum;
}

void Session::gemm_int32(bool packed) {
  Operands operands(input_);
  const std::int64_t m = size();
  const std::int64_t n = packed ? packed_n_ : size();
  const std::int64_t k = packed ? packed_k_ : size();
  const auto a = operands.matrix(SWITCHBACK_S8, m, k, Access::read);
  const auto b = operands.matrix(SWITCHBACK_S8, n, k, Access::read);
  const auto d = operands.matrix(SWITCHBACK_S32, m, n, Access::write);
  const auto* pa = Operands::pointer(input_, a);
  const auto* pb = Operands::pointer(input_, b);
  const auto* pd = Operands::pointer(input_, d);
  operands.remember();
  if (packed) {
    switchback_gemm_args args = {};
    args.struct_size = sizeof(args);
    if (pa != nullptr) args.a = *pa;
    if (pd != nullptr) args.d = *pd;
    args.packed_b = packed_;
    operands.check(switchback_gemm(context(), &args), "gemm of sums, packed");
    return;
  }
  const switchback_status status = switchback_gemm_s8s8s32(context(), pa, pb, pd);
  operands.check(status, "gemm_s8s8s32");
  if (status != SWITCHBACK_OK) return;
  for (std::int64_t r = 0; r < d.rows; ++r)
    for (std::int64_t c = 0; c < d.cols; ++c) {
      std::int32_t got = 0;
      std::memcpy(&got, static_cast<const unsigned char*>(d.data) + (r * d.stride + c) * 4, 4);
      FUZZ_REQUIRE(got == sum_of(a, b, r, c), "[%d,%d] of K %d is %d, not %d", static_cast<int>(r),
                   static_cast<int>(c), static_cast<int>(a.cols), got, sum_of(a, b, r, c));
    }
}

void Session::gemm_dequantize() {
  Operands operands(input_);
  const bool packed = packed_ != nullptr && input_.below(2) == 1;
  const std::int64_t m = size();
  const std::int64_t n = packed ? packed_n_ : size();
  const std::int64_t k = packed ? packed_k_ : size();
  switchback_gemm_args args = {};
  args.a = operands.matrix(SWITCHBACK_S8, m, k, Access::read);
  if (!packed || input_.rarely(20)) args.b = operands.matrix(SWITCHBACK_S8, n, k, Access::read);
  args.d = operands.matrix(float_type(), m, n, Access::write);
  args.absmax_a = operands.floats(m + 1, Access::read);
  args.absmax_b = operands.floats(n + 1, Access::read);
  args.absmax_b_count = input_.rarely(40) ? n - 2 : input_.below(2) == 0 ? 1 : n;
  if (input_.below(2) == 1) {
    args.bias = operands.floats(n + 1, Access::read);
    args.bias_dtype = input_.rarely(30) ? input_.below(9) - 2 : float_type();
  }
  args.packed_b = packed ? packed_ : nullptr;
  args.engine = engine(SWITCHBACK_ENGINES_GEMM);
  const SizedStruct<switchback_gemm_args> sized(input_, args);
  operands.remember();
  operands.check(switchback_gemm(context(), input_.rarely(60) ? nullptr : sized.get()), "gemm");
}

void Session::gemm_standard() {
  Operands operands(input_);
  const std::int64_t m = size(), n = size(), k = size();
  switchback_gemm_standard_args args = {};
  args.transpose_a = flag();
  args.transpose_b = flag();
  args.accumulate = flag();
  const std::int32_t type = float_type();
  const bool ta = args.transpose_a != 0, tb = args.transpose_b != 0;
  args.a = operands.matrix(type, ta ? k : m, ta ? m : k, Access::read);
  args.b = operands.matrix(type, tb ? n : k, tb ? k : n, Access::read);
  args.d = operands.matrix(input_.below(2) == 0 ? type : SWITCHBACK_F32, m, n, Access::write);
  if (input_.below(2) == 1) {
    args.bias = operands.floats(n + 1, Access::read);
    args.bias_dtype = input_.rarely(30) ? input_.below(9) - 2 : float_type();
  }
  args.engine = engine(SWITCHBACK_ENGINES_GEMM_STANDARD);
  const SizedStruct<switchback_gemm_standard_args> sized(input_, args);
  operands.remember();
  operands.check(switchback_gemm_standard(context(), input_.rarely(60) ? nullptr : sized.get()),
                 "gemm_standard");
}

// Quantizes two matrices in blocks of rows, and computes the blockwise product of their codes.
void Session::blockwise() {
  Operands operands(input_);
  const std::int64_t m = size(), n = size(), k = size();
  const std::int32_t block_rows = input_.rarely(20) ? input_.byte() - 8 : 128 << input_.below(4);
  const std::int64_t padded = block_rows < 128 ? m : whole_block_rows(m, block_rows);
  const std::int64_t blocks = block_rows < 128 ? m : padded / block_rows;
  const auto x = operands.matrix(float_type(), m, k, Access::read);
  const auto q = operands.matrix(SWITCHBACK_S8, m, k, Access::write);
  const auto q_t = operands.matrix(SWITCHBACK_S8, k, padded, Access::write);
  float* const rows = operands.floats(m + 1, Access::write);
  float* const of_blocks = operands.floats(blocks * k + 1, Access::write);
  float* const sums = operands.floats(k + 1, Access::write);
  switchback_gemm_blockwise_args args = {};
  args.a = operands.matrix(SWITCHBACK_S8, n, padded, Access::read);
  args.b = operands.matrix(SWITCHBACK_S8, k, padded, Access::read);
  args.d = operands.matrix(float_type(), n, k, Access::write);
  args.absmax_a = operands.floats(blocks * n + 1, Access::read);
  args.absmax_b = operands.floats(blocks * k + 1, Access::read);
  args.block_rows = block_rows;
  args.accumulate = flag();
  args.engine = engine(SWITCHBACK_ENGINES_GEMM_BLOCKWISE);
  args.m = input_.rarely(8) ? input_.byte() - 8 : input_.below(2) * m;
  const SizedStruct<switchback_gemm_blockwise_args> sized(input_, args);
  const auto* px = Operands::pointer(input_, x);
  const auto* pq_t = Operands::pointer(input_, q_t);
  const int which = input_.below(3);
  operands.remember();
  switchback_quantize_args codes = switchback_quantize_args_of(px);
  if (pq_t != nullptr) codes.q_t = *pq_t;
  codes.absmax_t = of_blocks;
  codes.block_rows = block_rows;
  if (which == 1) {
    codes.q = q;
    codes.absmax = rows;
    codes.column_sums = input_.below(2) == 0 ? sums : nullptr;
    codes.accumulate = flag();
  }
  if (which < 2)
    operands.check(switchback_quantize(context(), &codes), "quantize of blocks");
  else
    operands.check(switchback_gemm_blockwise(context(), sized.get()), "gemm_blockwise");
}

void Session::create_layer() {
  switchback_linear_options options = {};
  draw_layer(options);
  options.activation = input_.rarely(3) ? input_.below(4) : SWITCHBACK_NO_ACTIVATION;
  const SizedStruct<switchback_linear_options> sized(input_, options);
  switchback_linear* const made = created(sized.get());
  if (made == nullptr) return;
  switchback_linear_destroy(layer_);
  layer_ = made;
  layer_k_ = std::min<std::int64_t>(options.in_features, 200);
  layer_n_ = std::min<std::int64_t>(options.out_features, 200);
  layer_mode_ = options.mode;
  layer_type_ = options.dtype;
  saved_rows_ = 0;
  weight_is_gone_ = false;
  weight_ = bias_ = borrowed_x_ = nullptr;
}

void Session::set_weight() {
  Operands operands(input_);
  const auto w = operands.matrix(layer_type_, layer_n_, layer_k_, Access::read);
  const auto b = operands.matrix(float_type(), 1, layer_n_, Access::read);
  const bool with_bias = input_.below(2) == 1;
  const auto* pw = Operands::pointer(input_, w);
  operands.remember();
  const switchback_status status =
      switchback_linear_set_weight(layer_, pw, with_bias ? &b : nullptr);
  operands.check(status, "set_weight");
  if (status != SWITCHBACK_OK) return;
  weight_ = operands.block_of(w.data);
  bias_ = with_bias ? operands.block_of(b.data) : nullptr;
  weight_is_gone_ = false;
}

void Session::set_quantized_weight() {
  Operands operands(input_);
  const auto codes = operands.matrix(SWITCHBACK_S8, layer_n_, layer_k_, Access::read);
  const std::int64_t scales = layer_mode_ == SWITCHBACK_ROWWISE ? layer_n_ : 1;
  const std::int64_t count = input_.rarely(30) ? size() : scales;
  const float* absmax = operands.floats(count, Access::read);
  const auto b = operands.matrix(float_type(), 1, layer_n_, Access::read);
  const bool with_bias = input_.below(2) == 1;
  const auto* pcodes = Operands::pointer(input_, codes);
  operands.remember();
  const switchback_status status = switchback_linear_set_quantized_weight(
      layer_, pcodes, absmax, count, with_bias ? &b : nullptr);
  operands.check(status, "set_quantized_weight");
  if (status != SWITCHBACK_OK) return;
  // The layer has copied all operands, so it borrows no memory any longer.
  weight_ = bias_ = nullptr;
  weight_is_gone_ = false;
  borrowed_x_ = nullptr;
}

// weight_updated requires that the weight's memory exists, but it was freed after prepare_for_eval.
void Session::weight_updated() {
  if (weight_is_gone_) return;
  Operands(input_).check(switchback_linear_weight_updated(layer_), "weight_updated");
}

void Session::prepare_for_eval() {
  const switchback_status status = switchback_linear_prepare_for_eval(layer_);
  Operands(input_).check(status, "prepare_for_eval");
  // In an int8 mode, the layer does not read its weight again. In mode auto the library may have
  // chosen standard, which does.
  const bool int8 = layer_mode_ >= SWITCHBACK_ROWWISE && layer_mode_ < SWITCHBACK_AUTO;
  if (status == SWITCHBACK_OK && int8) {
    weight_ = bias_ = nullptr;
    weight_is_gone_ = true;
  }
}

void Session::forward() {
  Operands operands(input_);
  const std::int64_t m = size();
  const auto x = operands.matrix(layer_type_, m, layer_k_, Access::read);
  const auto y = operands.matrix(input_.below(2) == 0 ? layer_type_ : SWITCHBACK_F32, m, layer_n_,
                                 Access::write);
  const auto* px = Operands::pointer(input_, x);
  const auto* py = Operands::pointer(input_, y);
  const std::int32_t save = input_.rarely(40) ? 4 : input_.below(4);
  operands.remember();
  const switchback_status status = switchback_linear_forward(layer_, px, py, save, nullptr);
  operands.check(status, "forward");
  if (status == SWITCHBACK_OK && save != SWITCHBACK_SAVE_NOTHING &&
      save != SWITCHBACK_SAVE_CALLER) {
    saved_rows_ = x.rows;
    borrowed_x_ = save == SWITCHBACK_SAVE_BORROW ? operands.block_of(x.data) : nullptr;
  }
}

void Session::forward_codes() {
  Operands operands(input_);
  const std::int64_t m = size();
  const auto x = operands.matrix(layer_type_, m, layer_k_, Access::read);
  const auto y = operands.matrix(layer_type_, m, layer_n_, Access::write);
  const auto codes = operands.matrix(SWITCHBACK_S8, m, layer_k_, Access::write);
  float* absmax = operands.floats(m + 2, Access::write);
  const auto* px = Operands::pointer(input_, x);
  const auto* py = Operands::pointer(input_, y);
  operands.remember();
  const switchback_kept_input kept = {sizeof(kept), codes, absmax, 0};
  operands.check(switchback_linear_forward(layer_, px, py, SWITCHBACK_SAVE_CALLER, &kept),
                 "forward, codes");
}

void Session::backward(bool from_kept) {
  Operands operands(input_);
  switchback_linear_grads grads = {};
  const auto gradient_type = [&] { return input_.below(2) == 0 ? layer_type_ : SWITCHBACK_F32; };
  const std::int64_t rows = from_kept ? size() : saved_rows_;
  grads.g = operands.matrix(layer_type_, rows, layer_n_, Access::read);
  const int wanted = input_.byte();
  if ((wanted & 1) == 0) grads.dx = operands.matrix(gradient_type(), rows, layer_k_, Access::write);
  if ((wanted & 2) == 0)
    grads.dw = operands.matrix(gradient_type(), layer_n_, layer_k_, Access::write);
  if ((wanted & 4) == 0) grads.db = operands.matrix(gradient_type(), 1, layer_n_, Access::write);
  grads.accumulate = flag();
  if (input_.rarely(3)) {
    grads.y_activation = input_.below(4);
    grads.y = operands.matrix(layer_type_, rows, layer_n_, Access::read);
    grads.dx_of_activation = flag();
    grads.stochastic = flag();
    grads.rounding_row0 =
        grads.stochastic == 0 ? 0 : static_cast<std::int64_t>(input_.below(9)) - 1;
  }
  const SizedStruct<switchback_linear_grads> sized(input_, grads);
  if (from_kept) {
    const bool codes = input_.below(2) == 1;
    const auto x =
        operands.matrix(codes ? SWITCHBACK_S8 : layer_type_, rows, layer_k_, Access::read);
    float* absmax = operands.floats(rows + 2, Access::read);
    const auto* px = Operands::pointer(input_, x);
    operands.remember();
    switchback_kept_input kept = {};
    if (px != nullptr) kept.x = *px;
    if (codes) kept.absmax = absmax;
    const SizedStruct<switchback_kept_input> sized_kept(input_, kept);
    operands.check(switchback_linear_backward(layer_, sized.get(), sized_kept.get()),
                   "backward, kept input");
    return;
  }
  operands.remember();
  operands.check(
      switchback_linear_backward(layer_, input_.rarely(60) ? nullptr : sized.get(), nullptr),
      "backward");
}

void Session::one_call() {
  const int call = input_.byte();
  // Bytes from 247 on select newer calls. For the others the remainder modulo 31 selects a call, as
  // when the committed inputs were made.
  if (call >= 248) return grouped_call(input_, context_, call - 248);
  if (call == 247) return blockwise();
  const int which = call % 31;
  if (which < 10) return quantize(which);
  if (which == 10) return pack();
  if (which == 11) return gemm_int32(packed_ != nullptr);
  if (which == 12) return gemm_int32(false);
  if (which == 13) return gemm_dequantize();
  if (which == 14) return gemm_standard();
  if (which == 15) return create_layer();
  if (which >= 29) return activation(which == 30);
  if (layer_ == nullptr) {
    // A call refuses a null layer; destroying one is allowed.
    FUZZ_REQUIRE(switchback_linear_weight_updated(layer_) == SWITCHBACK_INVALID_ARGUMENT, "null");
    switchback_linear_destroy(layer_);
    return;
  }
  if (which <= 17) return set_weight();
  if (which == 18) return weight_updated();
  if (which == 19) return prepare_for_eval();
  if (which <= 21) return forward();
  if (which == 22) return forward_codes();
  if (which == 23) return set_quantized_weight();
  backward(which <= 25);
}

}  // namespace
}  // namespace switchback::test

// An input has several sessions, separated by three bytes that fuzzing seldom makes. They run one
// after the other.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::uint8_t mark[] = {0x00, 0xFF, 0x5A};
  const std::uint8_t* const end = data + size;
  while (true) {
    const std::uint8_t* const stop = std::search(data, end, std::begin(mark), std::end(mark));
    switchback::test::Input input(data, static_cast<std::size_t>(stop - data));
    switchback::test::Session(input).run();
    if (stop == end) return 0;
    data = stop + std::size(mark);
  }
}
