// SPDX-License-Identifier: Apache-2.0
// Steps of a layer with an activation, a rotation, dw in int8, stochastic rounding or operands of a
// wider type: the results are those of the operations, done one by one, whatever was kept of x.
#include <set>
#include <utility>

#include "linear/linear_support.hpp"
#include "support/device_memory.hpp"
#include "switchback/quant.hpp"
#include "switchback/rounding.hpp"

namespace switchback::test {
namespace {

constexpr StochasticRounding rounding{11, 12, 13, 14};

struct Features {
  Activation activation = Activation::none;
  Rotation rotation = Rotation::none;
  WeightGradient dw = WeightGradient::floating;
  std::int64_t block_rows = 128;
  Activation after = Activation::none;  // g is the gradient of after(y)
  bool stochastic = false;
  bool accumulate = false;
  bool wide = false;  // x and the weight are f32, whatever the layer's type is

  [[nodiscard]] std::string text() const {
    return "activation " + std::string(activation_name(activation)) + ", " +
           std::string(rotation_name(rotation)) + ", dw " + std::string(weight_gradient_name(dw)) +
           ", after it " + std::string(activation_name(after)) +
           (stochastic ? ", stochastic" : "") + (accumulate ? ", accumulated" : "") +
           (wide ? ", in f32" : "");
  }
};

// What backward has of x.
enum class Kept { copy, borrow, caller, codes, blocks };

// Codes of a matrix in blocks of rows, and their scales.
struct Blocks {
  Blocks(std::int64_t rows, std::int64_t cols, std::int64_t block_rows)
      : codes(cols, whole_block_rows(rows, block_rows)),
        absmax(static_cast<std::size_t>(whole_block_rows(rows, block_rows) / block_rows * cols)) {}
  Blocks(Context& context, FloatMatrix& x, std::int64_t block_rows, bool stochastic)
      : Blocks(x.rows(), x.cols(), block_rows) {
    if (stochastic)
      quantize_blockwise_transpose_stochastic(context, x.any(), rounding, block_rows, codes.view(),
                                              absmax);
    else
      quantize_blockwise_transpose(context, x.any(), block_rows, codes.view(), absmax);
  }
  Matrix<std::int8_t> codes;
  Vector<float> absmax;
};

// The matrix, rounded to the layer's type.
FloatMatrix rounded(FloatMatrix& m, const LayerCase& c) {
  FloatMatrix made(c.dtype, m.rows(), m.cols(), c.layout);
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t col = 0; col < m.cols(); ++col)
      made.set(r, col, m.get(r, col));
  return made;
}

// The results of a step, made by the operations of which it consists. Codes are made of a wide
// weight itself.
struct Operations {
  Operations(Context& context_, const LayerCase& c_, const Features& f_, LayerTrial& t)
      : context(context_),
        c(c_),
        f(f_),
        x(rounded(t.x, c)),
        a(activated(context, x, f.activation)),
        rotated_a(rotated(context, a, f.rotation)),
        codes(quantize(rotated_a, false, false)),
        w(traits_of(c.mode).is_floating() ? rounded(t.w, c) : rotated(context, t.w, f.rotation)),
        y(t.y),
        g(t.g),
        d_input(t.dx),
        dx(t.dx),
        dw(t.dw),
        db(t.db) {
    const ModeTraits& mode = traits_of(c.mode);
    if (mode.is_floating())
      gemm_standard(
          context,
          {.a = a.any(), .b = w.any(), .d = y.any(), .transpose_b = true, .bias = t.bias.any()});
    else
      multiply(codes, quantize(w, false, !mode.weight.of_rows()), &t.bias, y);
    context.synchronize();
    if (f.after != Activation::none)
      activation_backward(context, t.g.any(), y.any(), f.after, g.any());
    context.synchronize();
    multiply_gradient(mode);
    dx = d_input;
    if (f.activation != Activation::none)
      activation_backward(context, d_input.any(), x.any(), f.activation, dx.any());
    for (std::int64_t j = 0; j < c.n; ++j)
      db.set(0, j, column_sum(g, j) + (f.accumulate ? db.get(0, j) : 0.0f));
  }

  // dw from activation(x), or from what the codes of its rotated rows stand for.
  FloatMatrix weight_gradient(bool from_codes) {
    FloatMatrix made = dw;
    FloatMatrix read = from_codes ? value_of_codes() : a;
    if (f.dw == WeightGradient::floating) {
      gemm_standard(context, {.a = g.any(),
                              .b = read.any(),
                              .d = made.any(),
                              .transpose_a = true,
                              .accumulate = f.accumulate});
    } else {
      const Blocks g_blocks(context, g, f.block_rows, f.stochastic);
      const Blocks x_blocks(context, read, f.block_rows, false);
      gemm_blockwise(context, {.a = g_blocks.codes.view(),
                               .b = x_blocks.codes.view(),
                               .d = made.any(),
                               .absmax_a = g_blocks.absmax,
                               .absmax_b = x_blocks.absmax,
                               .block_rows = f.block_rows,
                               .accumulate = f.accumulate});
    }
    context.synchronize();
    return made;
  }

  Context& context;
  const LayerCase& c;
  const Features& f;
  FloatMatrix x, a, rotated_a;
  Quantized codes;
  FloatMatrix w, y, g, d_input, dx, dw, db;

 private:
  void multiply_gradient(const ModeTraits& mode) {
    if (mode.is_floating())
      return gemm_standard(context, {.a = g.any(), .b = w.any(), .d = d_input.any()});
    GradientOperands operands = gradient_operands(g, w, mode.weight);
    Quantized of_g = quantize(operands.g, false, false);
    if (f.stochastic)
      quantize_rowwise_stochastic(context, operands.g.any(), rounding,
                                  {of_g.codes.data(), c.m, c.n}, of_g.absmax);
    context.synchronize();
    if (f.rotation == Rotation::none) return multiply(of_g, operands.w, nullptr, d_input);
    FloatMatrix product(DType::f32, c.m, c.k);
    multiply(of_g, operands.w, nullptr, product);
    d_input = rotated(context, product, f.rotation, c.gradients);
  }

  FloatMatrix value_of_codes() {
    FloatMatrix values(f.rotation == Rotation::none ? c.dtype : DType::f32, c.m, c.k);
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.k; ++j)
        values.set(i, j, codes.value(i, j));
    return rotated(context, values, f.rotation, c.dtype);  // a rotation is its own inverse
  }
};

// One layer with these features, and the results that it must have.
class StepTrial {
 public:
  StepTrial(Context& context, const LayerCase& c, const Features& f)
      : context_(context), c_(c), f_(f), t_(c), layer_(make()), want_(context, c, f, t_) {}

  // Runs forward and backward, and compares all results, and what the caller keeps of x.
  void expect_right(Kept kept) {
    reset();
    const bool by_layer = kept == Kept::copy || kept == Kept::borrow;
    const bool from_codes = kept == Kept::codes || (by_layer && traits_of(c_.mode).keeps_codes);
    LinearGrads grads = this->grads();
    grads.dx_of_activation =
        f_.activation != Activation::none && (from_codes || kept == Kept::blocks);
    run(kept, grads);
    FloatMatrix dw = want_.weight_gradient(from_codes);
    EXPECT_TRUE(equal_bits(t_.y, want_.y, "y"));
    EXPECT_TRUE(equal_bits(t_.dx, grads.dx_of_activation ? want_.d_input : want_.dx, "dx"));
    EXPECT_TRUE(equal_bits(t_.dw, dw, "dw"));
    EXPECT_TRUE(equal_bits(t_.db, want_.db, "db"));
  }

  // Of the gradients dx (1), dw (2) and db (4), computes only these.
  void expect_only(int wanted) {
    reset();
    FloatMatrix dw = (wanted & 2) != 0 ? want_.weight_gradient(false) : t_.dw;
    FloatMatrix dx = (wanted & 1) != 0 ? want_.dx : t_.dx;
    FloatMatrix db = (wanted & 4) != 0 ? want_.db : t_.db;
    LinearGrads grads = this->grads();
    if ((wanted & 1) == 0) grads.dx = {};
    if ((wanted & 2) == 0) grads.dw = {};
    if ((wanted & 4) == 0) grads.db = {};
    run(Kept::caller, grads);
    EXPECT_TRUE(equal_bits(t_.dx, dx, "dx"));
    EXPECT_TRUE(equal_bits(t_.dw, dw, "dw"));
    EXPECT_TRUE(equal_bits(t_.db, db, "db"));
  }

 private:
  SwitchbackLinear make() {
    if (f_.wide) {
      Random random(5);
      t_.x = FloatMatrix(DType::f32, c_.m, c_.k, c_.layout);
      t_.w = FloatMatrix(DType::f32, c_.n, c_.k, c_.layout);
      t_.x.fill(random);
      t_.w.fill(random, 0.1f);
    }
    reset();
    LinearOptions options = t_.options();
    options.activation = f_.activation;
    options.rotation = f_.rotation;
    options.dw = f_.dw;
    options.dw_block_rows = f_.block_rows;
    return t_.make(context_, options);
  }

  void reset() {
    t_.spoil();
    if (!f_.accumulate) return;
    t_.dw.fill_value(0.25f);
    t_.db.fill_value(0.5f);
  }

  LinearGrads grads() {
    LinearGrads grads = t_.grads(f_.accumulate);
    grads.y_activation = f_.after;
    if (f_.after != Activation::none) grads.y = t_.y.any();
    if (f_.stochastic) grads.rounding = rounding;
    return grads;
  }

  void run(Kept kept, const LinearGrads& grads) {
    Matrix<std::int8_t> codes(c_.m, c_.k);
    Vector<float> absmax(static_cast<std::size_t>(c_.m));
    Blocks blocks(c_.m, c_.k, f_.block_rows);
    switch (kept) {
      case Kept::copy:
      case Kept::borrow:
        t_.forward(layer_, kept == Kept::copy ? Save::copy : Save::borrow);
        layer_.backward(grads);
        break;
      case Kept::caller:
        t_.forward(layer_, Save::caller);
        layer_.backward_from({t_.x.any(), {}}, grads);
        break;
      case Kept::codes:
        layer_.forward_codes(t_.x.any(), t_.y.any(), codes.view(), absmax);
        layer_.backward_from({codes.view(), absmax}, grads);
        break;
      case Kept::blocks:
        layer_.forward_block_codes(t_.x.any(), t_.y.any(), blocks.codes.view(), blocks.absmax);
        layer_.backward_from({blocks.codes.view(), blocks.absmax, true}, grads);
        break;
    }
    context_.synchronize();
    if (kept == Kept::codes) {
      const MatrixView<const std::int8_t> want(want_.codes.codes.data(), c_.m, c_.k);
      for (std::int64_t r = 0; r < c_.m; ++r)
        for (std::int64_t k = 0; k < c_.k; ++k)
          ASSERT_EQ(codes.get(r, k), want.data[r * c_.k + k]) << r << "," << k;
      EXPECT_EQ(absmax, want_.codes.absmax);
    }
    if (kept == Kept::blocks) {
      const Blocks want(context_, want_.a, f_.block_rows, false);
      context_.synchronize();
      EXPECT_TRUE(blocks.codes == want.codes);
      EXPECT_EQ(blocks.absmax, want.absmax);
    }
  }

  Context& context_;
  const LayerCase& c_;
  const Features& f_;
  LayerTrial t_;
  SwitchbackLinear layer_;
  Operations want_;
};

std::vector<Features> all_features() {
  constexpr auto gelu_tanh = Activation::gelu_tanh, gelu_erf = Activation::gelu_erf;
  constexpr auto hadamard_16 = Rotation::hadamard_16;
  constexpr auto int8 = WeightGradient::int8_block;
  return {
      {.activation = gelu_tanh},
      {.activation = gelu_erf, .wide = true},
      {.after = gelu_tanh, .accumulate = true},
      {.after = gelu_erf},
      {.rotation = Rotation::hadamard_4},
      {.rotation = hadamard_16, .accumulate = true},
      {.rotation = Rotation::hadamard_256},
      {.stochastic = true},
      {.wide = true},
      {.dw = int8},
      {.dw = int8, .block_rows = 256, .accumulate = true, .wide = true},
      {.activation = gelu_tanh, .dw = int8},
      {.activation = gelu_tanh, .rotation = hadamard_16, .wide = true},
      {.rotation = hadamard_16, .after = gelu_erf, .stochastic = true},
      {.activation = gelu_tanh,
       .rotation = hadamard_16,
       .dw = int8,
       .after = gelu_erf,
       .stochastic = true},
  };
}

bool has(const ModeTraits& mode, const Features& f) {
  if (f.rotation != Rotation::none && !mode.is_int8()) return false;
  return f.dw == WeightGradient::floating || mode.has_int8_dw();
}

void check(Context& context, const LayerCase& c, const Features& f) {
  StepTrial trial(context, c, f);
  for (const Kept kept : {Kept::copy, Kept::borrow, Kept::caller, Kept::codes, Kept::blocks}) {
    if (kept == Kept::codes && !traits_of(c.mode).is_int8()) continue;
    if (kept == Kept::blocks && f.dw == WeightGradient::floating) continue;
    SCOPED_TRACE(c.text() + ", " + f.text() + ", kept " + std::to_string(static_cast<int>(kept)));
    trial.expect_right(kept);
  }
  for (const int wanted : {0, 1, 2, 4, 6}) {
    SCOPED_TRACE(c.text() + ", " + f.text() + ", gradients " + std::to_string(wanted));
    trial.expect_only(wanted);
  }
}

// The emulated device and sanitizers are slow, so there every third case runs, or every thirteenth
// under ThreadSanitizer. These have all types, modes and features.
TEST(LinearSteps, AreTheirOperationsWhateverIsKept) {
  Context context(device_options());
  const std::size_t every = under_thread_sanitizer ? 13 : on_emulated() || sanitized ? 3 : 1;
  std::size_t turn = 0;
  for (const Features& f : all_features())
    for (const Mode mode : all_modes)
      for (const DType dtype : float_types)
        for (const DType gradients : std::set{dtype, DType::f32}) {
          if (!has(traits_of(mode), f) || (f.wide && dtype == DType::f32)) continue;
          if (turn++ % every != 0) continue;
          LayerCase c =
              cut_case(mode, dtype, gradients, f.rotation == Rotation::hadamard_256 ? 512 : 48);
          if (f.dw == WeightGradient::int8_block) c.m = 300;
          check(context, c, f);
          if (::testing::Test::HasFailure()) return;
        }
}

// On compute capability 9.0 the kernel of the product rotates a dX that has enough tiles.
TEST(LinearSteps, ARotatedDxOfManyRows) {
  const Features f{.rotation = Rotation::hadamard_256};
  show_fused_products(true);
  {
    Context context(device_options());
    for (const Mode mode : int8_modes)
      for (const DType gradients : {DType::f32, DType::bf16}) {
        LayerCase c = cut_case(mode, DType::bf16, gradients, 512);
        c.m = on_cpu() || on_emulated() ? 130 : 6401;
        c.layout = {16, 0};
        StepTrial(context, c, f).expect_right(Kept::borrow);
      }
  }
  show_fused_products(false);
}

}  // namespace
}  // namespace switchback::test
