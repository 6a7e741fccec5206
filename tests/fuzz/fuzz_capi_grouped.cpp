// SPDX-License-Identifier: Apache-2.0
// The C ABI calls with groups of rows that fuzz_capi.cpp makes.
#include <algorithm>
#include <cstdint>

#include "fuzz/draws.hpp"
#include "fuzz/guarded.hpp"

namespace switchback::test {
namespace {

class GroupedCalls : private Draws {
 public:
  GroupedCalls(Input& input, switchback_context* context) : Draws(input, context) {}
  ~GroupedCalls() {
    switchback_linear_destroy(layer_);
    switchback_packed_weight_destroy(packed_);
  }
  GroupedCalls(const GroupedCalls&) = delete;
  GroupedCalls& operator=(const GroupedCalls&) = delete;

  void call(int which) {
    if (which == 0) return grouped_quantize();
    if (which == 2) pack_groups();
    if (which <= 3) return grouped_gemm(which == 3);
    if (which == 4) return grouped_standard();
    if (which == 5) return combine();
    create_layer();
    step();
  }

 private:
  switchback_groups groups(Operands& operands, std::int64_t slots, std::int64_t rows_of_x);
  void grouped_quantize();
  void pack_groups();
  void grouped_gemm(bool sums);
  void grouped_standard();
  void combine();
  void create_layer();
  void step();

  switchback_packed_weight* packed_ = nullptr;
  std::int64_t packed_n_ = 0, packed_k_ = 0;
  switchback_linear* layer_ = nullptr;
  switchback_linear_options options_ = {};  ///< of `layer_`
  std::int32_t grouped_count_ = 0;
};

// Draws a description of groups with `slots` slots. If `rows_of_x` is not 0, an index may say which
// row of x each slot reads. The description is mostly valid.
switchback_groups GroupedCalls::groups(Operands& operands, std::int64_t slots,
                                       std::int64_t rows_of_x) {
  switchback_groups made = {};
  made.struct_size = input_.rarely(60) ? 8 : sizeof(made);
  made.count = input_.rarely(60) ? -1 : grouped_count_;
  made.on_device = flag();
  const auto numbers = [&](std::int64_t count) { return operands.integers(count, Access::read); };
  const auto spoil = [&](std::int32_t* values, std::int64_t count) {
    if (values != nullptr && count > 0 && input_.rarely(30))
      values[input_.byte() % count] = input_.byte() * 1000003 - 128000000;
  };
  const bool strides = grouped_count_ > 0 && slots % grouped_count_ == 0;
  const bool packed = !strides || input_.below(2) == 0;
  auto* const lengths = numbers(grouped_count_);
  (packed ? made.ends : made.rows_of) = lengths;
  if (!packed) made.row_stride = slots / grouped_count_;
  std::int64_t end = 0;
  for (std::int32_t g = 0; lengths != nullptr && g < grouped_count_; ++g) {
    const std::int64_t most = packed ? slots - end : made.row_stride;
    const std::int64_t rows = most == 0 ? 0 : input_.byte() % (most + 1);
    end = packed ? end + rows : 0;
    lengths[g] = static_cast<std::int32_t>(packed ? end : rows);
  }
  spoil(lengths, grouped_count_);
  if (rows_of_x > 0 && input_.below(2) == 1) {
    auto* const index = numbers(slots);
    for (std::int64_t slot = 0; index != nullptr && slot < slots; ++slot)
      index[slot] = static_cast<std::int32_t>(input_.byte() % rows_of_x);
    spoil(index, slots);
    made.row_index = index;
  }
  if (input_.rarely(20)) made.column_stride = input_.below(20) - 2;
  return made;
}

void GroupedCalls::grouped_quantize() {
  Operands operands(input_);
  grouped_count_ = input_.below(6);
  const std::int64_t slots = size(), rows = size(), k = size();
  const auto x = operands.matrix(float_type(), rows, k, Access::read);
  const auto q = operands.matrix(SWITCHBACK_S8, slots, k, Access::write);
  float* absmax = operands.floats(slots + 1, Access::write);
  const switchback_groups made = groups(operands, slots, rows);
  operands.remember();
  operands.check(switchback_grouped_quantize_rowwise(context(), &x, &made, &q, absmax),
                 "grouped_quantize_rowwise");
}

void GroupedCalls::pack_groups() {
  Operands operands(input_);
  if (packed_ == nullptr)
    FUZZ_REQUIRE(switchback_packed_weight_create(&packed_) == SWITCHBACK_OK, "no pack");
  const std::int64_t count = input_.below(6);
  const auto b = operands.matrix(SWITCHBACK_S8, count * input_.below(20), size(), Access::read);
  operands.remember();
  const switchback_status status =
      switchback_pack_weight(context(), &b, count, packed_, engine(SWITCHBACK_ENGINES_GEMM));
  operands.check(status, "pack_weight of groups");
  if (status == SWITCHBACK_OK) {
    packed_n_ = b.rows / count;
    packed_k_ = b.cols;
    grouped_count_ = static_cast<std::int32_t>(count);
  }
}

void GroupedCalls::grouped_gemm(bool sums) {
  Operands operands(input_);
  const bool packed = packed_ != nullptr && input_.below(2) == 1;
  if (!packed) grouped_count_ = input_.below(6);
  const std::int64_t slots = size();
  const std::int64_t n = packed ? packed_n_ : input_.below(20);
  const std::int64_t k = packed ? packed_k_ : size();
  switchback_gemm_args args = {};
  args.a = operands.matrix(SWITCHBACK_S8, slots, k, Access::read);
  if (!packed) args.b = operands.matrix(SWITCHBACK_S8, grouped_count_ * n, k, Access::read);
  const std::int32_t type = sums ? SWITCHBACK_S32 : float_type();
  args.d = operands.matrix(type, slots, n, Access::write);
  if (!sums || input_.rarely(20)) {
    args.absmax_a = operands.floats(slots + 1, Access::read);
    args.absmax_b = operands.floats(grouped_count_ * n + 6, Access::read);
    args.absmax_b_count = input_.rarely(40) ? 2 : grouped_count_ * (input_.below(2) == 0 ? 1 : n);
    if (input_.below(2) == 1) args.bias = operands.floats(grouped_count_ * n + 1, Access::read);
  }
  const switchback_groups made = groups(operands, slots, 0);
  args.groups = &made;
  args.packed_b = packed ? packed_ : nullptr;
  args.engine = engine(SWITCHBACK_ENGINES_GEMM);
  if (input_.rarely(20)) args.d_column_stride = input_.below(20) - 2;
  const SizedStruct<switchback_gemm_args> sized(input_, args);
  operands.remember();
  const auto* const given = input_.rarely(60) ? nullptr : sized.get();
  operands.check(switchback_gemm(context(), given), "gemm of groups");
}

void GroupedCalls::grouped_standard() {
  Operands operands(input_);
  grouped_count_ = input_.below(6);
  const std::int64_t slots = size(), n = input_.below(20), k = input_.below(20);
  const std::int64_t g = grouped_count_;
  switchback_gemm_standard_args args = {};
  args.transpose_a = flag();
  args.transpose_b = flag();
  args.accumulate = flag();
  const std::int32_t type = float_type();
  const bool ta = args.transpose_a != 0, tb = args.transpose_b != 0;
  args.a = operands.matrix(type, slots, ta ? n : k, Access::read);
  args.b = ta ? operands.matrix(type, slots, k, Access::read)
              : operands.matrix(type, g * (tb ? n : k), tb ? k : n, Access::read);
  const std::int32_t d_type = input_.below(2) == 0 ? type : SWITCHBACK_F32;
  args.d = ta ? operands.matrix(d_type, g * n, k, Access::write)
              : operands.matrix(d_type, slots, n, Access::write);
  if (input_.below(2) == 1) args.bias = operands.floats(g * std::max(n, k) + 1, Access::read);
  args.engine = engine(SWITCHBACK_ENGINES_GEMM_STANDARD);
  const switchback_groups made = groups(operands, slots, 0);
  args.groups = &made;
  const SizedStruct<switchback_gemm_standard_args> sized(input_, args);
  operands.remember();
  operands.check(switchback_gemm_standard(context(), sized.get()), "gemm_standard of groups");
}

void GroupedCalls::combine() {
  Operands operands(input_);
  const std::int64_t rows = size(), slots = input_.below(5), n = size(), m = size();
  const auto y = operands.matrix(float_type(), m, n, Access::read);
  auto where = operands.matrix(SWITCHBACK_S32, rows, slots, Access::read);
  std::int32_t* const numbers = operands.integers(rows * slots, Access::read);
  for (std::int64_t i = 0; numbers != nullptr && i < rows * slots; ++i)
    numbers[i] = static_cast<std::int32_t>(input_.byte() % (m + 2)) - 1;
  if (input_.below(8) != 0) where = {numbers, SWITCHBACK_S32, rows, slots, slots};
  const auto weights = operands.matrix(SWITCHBACK_F32, rows, slots, Access::read);
  const auto out = operands.matrix(float_type(), rows, n, Access::write);
  const auto* pweights = input_.below(2) == 0 ? nullptr : &weights;
  operands.remember();
  operands.check(switchback_combine(context(), &y, &where, pweights, &out), "combine");
}

// Newer options are drawn from the end of the input, so that the meaning of inputs that were
// committed earlier does not change.
void GroupedCalls::create_layer() {
  switchback_linear_options options = {};
  options.groups = input_.rarely(40) ? -size() : 1 + input_.below(4);
  draw_layer(options);
  const int features = input_.byte_from_end();
  const bool shares = (features & 4) != 0, rotates = (features & 32) != 0;
  options.activation = (features & 3) == 3 ? SWITCHBACK_NO_ACTIVATION : features & 3;
  if (shares && options.mode == SWITCHBACK_ROWWISE) options.mode = SWITCHBACK_ROWWISE_SHARED;
  const bool has_dw = options.mode == SWITCHBACK_ROWWISE || options.mode == SWITCHBACK_GLOBAL ||
                      options.mode >= SWITCHBACK_AUTO;
  options.dw = has_dw ? features >> 3 & 1 : SWITCHBACK_DW_FLOATING;
  options.dw_block_rows = (features & 16) != 0 ? 128 : 0;
  if (rotates) options.in_features = options.in_features / 4 * 4;
  const bool is_int8 = options.mode != SWITCHBACK_STANDARD && options.mode != SWITCHBACK_AUTO;
  options.rotation = rotates && is_int8 ? 4 : 0;
  const bool may_transpose = options.groups <= 1 || (features & 1) == 0;
  options.transposed_weight = may_transpose && (features & 0xC0) == 0xC0 ? 1 : 0;
  const SizedStruct<switchback_linear_options> sized(input_, options);
  switchback_linear* const made = created(sized.get());
  if (made == nullptr) return;
  switchback_linear_destroy(layer_);
  layer_ = made;
  options_ = options;
  grouped_count_ = options.groups == 0 ? 1 : static_cast<std::int32_t>(options.groups);
}

// Makes all calls of a layer with groups. Their operands live until the layer is destroyed.
void GroupedCalls::step() {
  if (layer_ == nullptr) {
    FUZZ_REQUIRE(switchback_linear_prepare_for_eval(nullptr) == SWITCHBACK_INVALID_ARGUMENT,
                 "null");
    return;
  }
  Operands operands(input_);
  const int how = input_.byte_from_end();
  const std::int64_t slots = size(), rows = size(), k = options_.in_features;
  const std::int64_t n = std::min<std::int64_t>(options_.out_features, 200);
  const std::int32_t type = options_.dtype;
  const auto other = [&] { return input_.below(2) == 0 ? type : SWITCHBACK_F32; };
  const auto weight = [&](std::int32_t dtype, Access access) {
    return options_.transposed_weight != 0 ? operands.matrix(dtype, k, grouped_count_ * n, access)
                                           : operands.matrix(dtype, grouped_count_ * n, k, access);
  };
  const auto w = weight((how & 1) == 0 ? type : SWITCHBACK_F32, Access::read);
  const auto bias = operands.matrix(float_type(), grouped_count_, n, Access::read);
  const auto x = operands.matrix((how & 2) == 0 ? type : SWITCHBACK_F32, rows, k, Access::read);
  const auto y = operands.matrix(other(), slots, n, Access::write);
  const switchback_groups made = groups(operands, slots, rows);
  switchback_linear_grads grads = {};
  grads.g = operands.matrix(type, slots, n, Access::read);
  const int wanted = input_.byte();
  if ((wanted & 1) == 0) grads.dx = operands.matrix(other(), slots, k, Access::write);
  if ((wanted & 2) == 0) grads.dw = weight(other(), Access::write);
  if ((wanted & 4) == 0) grads.db = operands.matrix(other(), grouped_count_, n, Access::write);
  grads.accumulate = flag();
  if ((how & 12) == 12) {
    grads.y_activation = SWITCHBACK_GELU_ERF;
    grads.y = y;
  }
  if (options_.activation != SWITCHBACK_NO_ACTIVATION) grads.dx_of_activation = how >> 4 & 1;
  grads.stochastic = (how & 0xE0) == 0xE0 ? 1 : 0;
  const SizedStruct<switchback_linear_grads> sized(input_, grads);
  const std::int32_t save = input_.rarely(40) ? 4 : input_.below(4);
  const auto* pbias = input_.below(2) == 0 ? nullptr : &bias;
  const bool eval = input_.rarely(5);
  operands.remember();
  switchback_status status = switchback_linear_set_weight(layer_, &w, pbias);
  operands.check(status, "set_weight of groups");
  if (status == SWITCHBACK_OK) {
    // A layer with one group also accepts rows without groups.
    status = (how & 0xE0) == 0x60 ? switchback_linear_forward(layer_, &x, &y, save, nullptr)
                                  : switchback_linear_forward_groups(layer_, &made, &x, &y, save);
    operands.check(status, "forward of groups");
    if (status == SWITCHBACK_OK) operands.remember();
    const bool saved = save == SWITCHBACK_SAVE_COPY || save == SWITCHBACK_SAVE_BORROW;
    status = saved && status == SWITCHBACK_OK
                 ? switchback_linear_backward(layer_, sized.get(), nullptr)
                 : switchback_linear_backward_groups(layer_, sized.get(), &made, &x);
    operands.check(status, "backward of groups");
    if (eval) {
      operands.remember();
      operands.check(switchback_linear_prepare_for_eval(layer_), "eval of groups");
      operands.check(switchback_linear_forward_groups(layer_, &made, &x, &y, 0),
                     "forward of groups of codes");
      operands.remember();
      operands.check(switchback_linear_backward_groups(layer_, sized.get(), &made, &x),
                     "backward of groups of codes");
    }
  }
  // The layer borrows memory of `operands`, so it is destroyed before they are.
  switchback_linear_destroy(layer_);
  layer_ = nullptr;
}

}  // namespace

void grouped_call(Input& input, switchback_context* context, int which) {
  GroupedCalls(input, context).call(which);
}

}  // namespace switchback::test
