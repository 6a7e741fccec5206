// SPDX-License-Identifier: Apache-2.0
// Tests of requests to quantize: every combination of results of a matrix, computed by one
// operation or by several, equals the reference bit for bit.
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "quant/backends.hpp"
#include "quant/dispatch.hpp"
#include "quant/every_op.hpp"
#include "quant/passes.hpp"
#include "quant/reference.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {
namespace {

using quant::Op;
using quant::Request;
using quant::Scales;
using quant::Source;

// The results that a test requests of a matrix v. `source` says what v is: x, an activation of x, a
// gradient, or the values of codes.
struct Wanted {
  Source source = Source::floats;
  Scales q = Scales::none;
  Scales q_t = Scales::none;
  bool sums = false;
  bool value = false;
  Rotation rotation = Rotation::none;
  bool rotated = false;
  bool stochastic = false;
  bool scaled = false;
};

std::string describe(const Wanted& w) {
  return "source " + std::to_string(static_cast<int>(w.source)) + " q " +
         std::to_string(static_cast<int>(w.q)) + " q_t " + std::to_string(static_cast<int>(w.q_t)) +
         (w.sums ? " sums" : "") + (w.value ? " value" : "") + " " +
         std::string(rotation_name(w.rotation)) + (w.rotated ? " rotated" : "") +
         (w.stochastic ? " stochastic" : "") + (w.scaled ? " scaled" : "");
}

std::vector<Wanted> all_combinations(Rotation rotation = Rotation::none) {
  std::vector<Wanted> all;
  for (const Source source : {Source::floats, Source::activation, Source::gradient, Source::codes})
    for (const Scales q : {Scales::none, Scales::unscaled, Scales::per_row, Scales::global})
      for (const Scales q_t : {Scales::none, Scales::per_column, Scales::global, Scales::per_block})
        for (const bool sums : {false, true})
          for (const bool value : {false, true})
            if (!value || source != Source::floats)
              all.push_back({source, q, q_t, sums, value, rotation, false});
  return all;
}

// Inputs for requests of every kind: v may be x, an activation of x, a gradient or the values of
// codes. X is the type of x, V the type of v.
template <class X, class V>
struct Inputs {
  Matrix<X> x;
  Matrix<V> g;
  Matrix<std::int8_t> codes;
  Floats scales;
  Floats column_scales;

  Inputs(std::int64_t rows, std::int64_t cols, Layout layout = {})
      : x(rows, cols, layout),
        g(rows, cols, layout),
        codes(rows, cols, layout),
        scales(rows),
        column_scales(cols) {
    Random random(static_cast<std::uint64_t>(rows * 1000 + cols));
    fill_normal(x, random);
    fill_normal(g, random);
    for (std::int64_t c = 0; c < cols; ++c)
      column_scales.values.set(0, c, static_cast<float>(random.normal()) * 3.0f);
    for (std::int64_t r = 0; r < rows; ++r) {
      scales.values.set(0, r, 0.5f + static_cast<float>(r));
      for (std::int64_t c = 0; c < cols; ++c)
        codes.set(r, c, static_cast<std::int8_t>((r * 31 + c * 7) % 255 - 127));
    }
  }
};

constexpr std::int64_t block_rows = 128;

template <class V>
struct Made {
  Matrix<std::int8_t> q, q_t, q_of_blocks;
  Floats absmax, absmax_t, absmax_of_blocks, sums;
  Matrix<V> value;
  Matrix<float> rotated;

  Made(std::int64_t rows, std::int64_t cols, Layout layout)
      : q(rows, cols, layout),
        q_t(cols, rows, layout),
        q_of_blocks(cols, whole_block_rows(rows, block_rows), layout),
        absmax(rows),
        absmax_t(cols),
        absmax_of_blocks(quant::scale_count(Scales::per_block, rows, cols, block_rows)),
        sums(cols),
        value(rows, cols, layout),
        rotated(rows, cols, layout) {
    for (std::int64_t c = 0; c < cols; ++c)
      sums.values.set(0, c, 0.25f);  // the results are added to this
  }
};

std::span<float> scales_in(Floats& floats, Scales scales) {
  switch (scales) {
    case Scales::none:
    case Scales::unscaled:
      return {};
    case Scales::global:
      return floats.span().first(1);
    default:
      return floats.span();
  }
}

template <class X, class V>
Request request_of(Inputs<X, V>& in, Made<V>& out, const Wanted& wanted) {
  Request r;
  r.x = in.x.view();
  if (wanted.source == Source::codes) {
    r.x = in.codes.view();
    r.absmax_x = in.scales.span();
  } else if (wanted.source != Source::floats) {
    r.activation = Activation::gelu_tanh;
    if (wanted.source == Source::gradient) r.g = in.g.view();
  }
  const bool shared = wanted.q == Scales::global && wanted.q_t == Scales::global;
  if (wanted.q != Scales::none) r.q = {wanted.q, out.q.view(), scales_in(out.absmax, wanted.q)};
  if (wanted.q_t == Scales::per_block)
    r.q_t = {wanted.q_t, out.q_of_blocks.view(), out.absmax_of_blocks.span(), block_rows};
  else if (wanted.q_t != Scales::none)
    r.q_t = {wanted.q_t, out.q_t.view(), scales_in(shared ? out.absmax : out.absmax_t, wanted.q_t)};
  if (wanted.sums) {
    r.column_sums = out.sums.span();
    r.accumulate = true;
  }
  if (wanted.value) r.value = out.value.view();
  r.rotation = wanted.rotation;
  if (wanted.rotated) r.rotated = out.rotated.view();
  if (wanted.scaled) r.column_scales = in.column_scales.span();
  if (wanted.stochastic) r.stochastic = StochasticRounding{5, 6, 7, 8};
  return r;
}

// Compares requests in every Context with the reference, which makes all results in a single call.
// Results that are not requested are compared too: they must not change.
template <class X, class V>
void check(Inputs<X, V>& in, const std::vector<Wanted>& combinations, Layout layout = {}) {
  const std::int64_t rows = in.x.rows();
  const std::int64_t cols = in.x.cols();
  for (const Wanted& wanted : combinations) {
    Made<V> want(rows, cols, layout);
    const Request reference_request = request_of(in, want, wanted);
    reference().state().threads.for_each(
        1, [&](std::int64_t, int) { quant::reference::run(reference_request); });
    for (auto& [name, context] : contexts()) {
      SCOPED_TRACE(name + ": " + describe(wanted));
      Made<V> got(rows, cols, layout);
      quant::run(context.state(), request_of(in, got, wanted));
      EXPECT_TRUE(same_codes(got.q, want.q)) << "q";
      EXPECT_TRUE(same_codes(got.q_t, want.q_t)) << "q_t";
      EXPECT_TRUE(same_codes(got.q_of_blocks, want.q_of_blocks)) << "q_t of blocks";
      EXPECT_TRUE(same_bits(got.absmax_of_blocks.values, want.absmax_of_blocks.values))
          << "absmax of blocks";
      EXPECT_TRUE(same_bits(got.absmax.values, want.absmax.values)) << "absmax of q";
      EXPECT_TRUE(same_bits(got.absmax_t.values, want.absmax_t.values)) << "absmax of q_t";
      EXPECT_TRUE(same_bits(got.sums.values, want.sums.values)) << "sums";
      EXPECT_TRUE(got.value == want.value) << "value";
      EXPECT_TRUE(got.rotated == want.rotated) << "rotated";
      EXPECT_TRUE(got.q.guards_intact() && got.q_t.guards_intact() &&
                  got.q_of_blocks.guards_intact() && got.value.guards_intact());
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(RequestsEngines, EveryCombination) {
  Inputs<float, float> in(37, 45);
  check(in, all_combinations());
}

// The quantized matrix v has another type than x: it is a gradient in f32.
TEST(RequestsEngines, EveryCombinationOfTwoTypes) {
  std::vector<Wanted> combinations;
  for (const Wanted& wanted : all_combinations())
    if (wanted.source == Source::gradient) combinations.push_back(wanted);
  Inputs<half, float> in(21, 33);
  check(in, combinations);
}

TEST(RequestsEngines, EveryCombinationOfRotatedCodes) {
  std::vector<Wanted> combinations = all_combinations(Rotation::hadamard_16);
  for (Wanted wanted : all_combinations(Rotation::hadamard_16)) {
    wanted.rotated = true;
    combinations.push_back(wanted);
  }
  Inputs<float, float> in(37, 48);
  check(in, combinations);
}

// What a layer requests of a gradient: stochastic codes, column sums, and the gradient itself if it
// is derived from another one.
TEST(RequestsEngines, StochasticCodes) {
  std::vector<Wanted> combinations;
  for (const Source source : {Source::floats, Source::activation, Source::gradient, Source::codes})
    for (const bool sums : {false, true})
      for (const bool value : {false, true})
        if (!value || source != Source::floats)
          combinations.push_back(
              {source, Scales::per_row, Scales::none, sums, value, Rotation::none, false, true});
  Inputs<float, float> in(37, 45);
  check(in, combinations);
}

// A layer with one int8 W for both products requests codes of the gradient after its columns were
// scaled. All other results are of the gradient itself.
std::vector<Wanted> scaled_combinations() {
  std::vector<Wanted> combinations;
  for (const Source source : {Source::floats, Source::activation, Source::gradient, Source::codes})
    for (const Scales q_t : {Scales::none, Scales::per_column, Scales::per_block})
      for (const bool sums : {false, true})
        for (const bool value : {false, true})
          if (!value || source != Source::floats)
            combinations.push_back(
                {source, Scales::per_row, q_t, sums, value, Rotation::none, false, false, true});
  for (const bool sums : {false, true})
    combinations.push_back({Source::floats, Scales::per_row, Scales::none, sums, false,
                            Rotation::none, false, true, true});
  return combinations;
}
TEST(RequestsEngines, ScaledCodes) {
  Inputs<float, float> in(37, 45);
  check(in, scaled_combinations());
}

template <class T>
class RequestsOfTypes : public ::testing::Test {};
using FloatTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(RequestsOfTypes, FloatTypes);

// The operands of an int8 weight gradient: both layouts of a matrix' codes, and its column sums.
TYPED_TEST(RequestsOfTypes, BothLayoutsAndColumnSums) {
  std::vector<Wanted> wanted;
  for (const Source source : {Source::floats, Source::activation, Source::gradient})
    for (const Scales q_t : {Scales::per_column, Scales::per_block})
      wanted.push_back({source, Scales::per_row, q_t, true, false});
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {129, 40},
                                   {300, 272},
                                   {0, 8},
                                   {8, 0},
                                   {0, 0}}) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check(in, wanted);
  }
  Inputs<TypeParam, TypeParam> in(70, 50, {3, 1});
  check(in, wanted, {5, 1});
}

// Codes of rows with scaled columns: alone, with column sums, and rounded stochastically.
std::vector<Wanted> scaled_rows() {
  return {{Source::floats, Scales::per_row, Scales::none, false, false, Rotation::none, false,
           false, true},
          {Source::floats, Scales::per_row, Scales::none, true, false, Rotation::none, false, false,
           true},
          {Source::floats, Scales::per_row, Scales::none, false, false, Rotation::none, false, true,
           true}};
}

TYPED_TEST(RequestsOfTypes, ScaledCodes) {
  const std::vector<Wanted> wanted = scaled_rows();
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {2, 15},
                                   {3, 16},
                                   {5, 63},
                                   {5, 64},
                                   {5, 65},
                                   {129, 40},
                                   {300, 272},
                                   {1, 9000},
                                   {3, 4104},
                                   {1, 16392},
                                   {70, 512},
                                   {130, 2056},
                                   {2, 16384},
                                   {2, 16392},
                                   {0, 8},
                                   {0, 0}}) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check(in, wanted);
  }
  Inputs<TypeParam, TypeParam> in(70, 50, {3, 1});
  check(in, wanted, {5, 1});
}

// On a device, one or several warps compute the scales of such rows.
TYPED_TEST(RequestsOfTypes, ScaledRowsOfSeveralWarps) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{3, 520}, {41, 1032}, {6, 4096}}) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check(in, scaled_rows());
  }
}

// If a scaled element overflows, it is an Inf, and its row has no codes. Other rows have NaN, zeros
// and subnormals.
TEST(RequestsEngines, UnusualScaledRows) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const std::int64_t cols : {70, 272}) {
    Inputs<float, float> in(9, cols);
    in.column_scales.values.set(0, 3, 0x1p100f);
    in.column_scales.values.set(0, cols - 1, 0.0f);
    for (std::int64_t c = 0; c < cols; ++c) {
      in.x.set(0, c, 0.0f);
      in.x.set(1, c, 0x1p-149f);
    }
    in.x.set(2, 3, 0x1p90f);
    in.x.set(3, cols - 1, inf);  // times 0: NaN
    in.x.set(4, 68, std::numeric_limits<float>::quiet_NaN());
    in.x.set(5, 10, -inf);
    check(in, {{Source::floats, Scales::per_row, Scales::none, true, false, Rotation::none, false,
                false, true},
               {Source::floats, Scales::per_row, Scales::none, false, false, Rotation::none, false,
                true, true}});
  }
}

// ---- Requests for several matrices, such as the weights of groups

struct ManyMatrices {
  std::int64_t rows, cols, count;
  std::int64_t gap = 0;  ///< rows between the matrices, also of their codes
  bool columns = false;  ///< whether the matrices lie next to each other
  Layout layout = {};
};

// Where matrix `i` begins in the matrix that contains all of them.
struct Corner {
  std::int64_t row = 0, col = 0;
  Corner(const ManyMatrices& m, std::int64_t i)
      : row(m.columns ? 0 : i * (m.rows + m.gap)), col(m.columns ? i * m.cols : 0) {}
};

template <class T>
void check_matrices(const ManyMatrices& m, Scales q, Scales q_t) {
  const std::int64_t all_rows = m.columns ? m.rows : m.count * (m.rows + m.gap);
  Matrix<T> x(all_rows, m.columns ? m.count * m.cols : m.cols, m.layout);
  Random random(static_cast<std::uint64_t>(m.rows * 1000 + m.cols));
  fill_normal(x, random);
  const bool shared = q == Scales::global && q_t == Scales::global;
  const std::int64_t of_q = quant::scale_count(q, m.rows, m.cols);
  const std::int64_t of_q_t = shared ? 0 : quant::scale_count(q_t, m.rows, m.cols);
  struct Out {
    Matrix<std::int8_t> q, q_t;
    Floats absmax, absmax_t;
  };
  const auto make_out = [&] {
    return Out{{m.count * (m.rows + m.gap), m.cols, m.layout},
               {m.count * (m.cols + m.gap), m.rows, m.layout},
               Floats(m.count * of_q),
               Floats(m.count * of_q_t)};
  };
  const auto request = [&](Out& out, std::int64_t i, std::int64_t count) {
    const auto part = [&](Floats& floats, std::int64_t each) {
      return floats.span().subspan(static_cast<std::size_t>(i * each),
                                   static_cast<std::size_t>(count * each));
    };
    const Corner at(m, i);
    const std::int64_t q_step = (m.rows + m.gap) * out.q.stride();
    const std::int64_t q_t_step = (m.cols + m.gap) * out.q_t.stride();
    Request r;
    r.x = MatrixView<const T>(x.data() + at.row * x.stride() + at.col, m.rows, m.cols, x.stride());
    r.matrices = {count, Corner(m, 1).row * x.stride() + Corner(m, 1).col};
    if (q != Scales::none)
      r.q = {q,
             {out.q.data() + i * q_step, m.rows, m.cols, out.q.stride()},
             part(out.absmax, of_q),
             0,
             q_step};
    if (q_t != Scales::none)
      r.q_t = {q_t,
               {out.q_t.data() + i * q_t_step, m.cols, m.rows, out.q_t.stride()},
               shared ? part(out.absmax, of_q) : part(out.absmax_t, of_q_t),
               0,
               q_t_step};
    return r;
  };
  Out want = make_out();
  for (std::int64_t i = 0; i < m.count; ++i) {
    const Request one = request(want, i, 1);
    reference().state().threads.for_each(1, [&](std::int64_t, int) { quant::reference::run(one); });
  }
  for (auto& [name, context] : contexts()) {
    SCOPED_TRACE(::testing::Message()
                 << name << ": " << m.count << " of [" << m.rows << "," << m.cols << "] gap "
                 << m.gap << (m.columns ? " side by side" : "") << " q " << static_cast<int>(q)
                 << " q_t " << static_cast<int>(q_t));
    Out got = make_out();
    quant::run(context.state(), request(got, 0, m.count));
    EXPECT_TRUE(same_codes(got.q, want.q)) << "q";
    EXPECT_TRUE(same_codes(got.q_t, want.q_t)) << "q_t";
    EXPECT_TRUE(same_bits(got.absmax.values, want.absmax.values)) << "absmax of q";
    EXPECT_TRUE(same_bits(got.absmax_t.values, want.absmax_t.values)) << "absmax of q_t";
    EXPECT_TRUE(got.q.guards_intact() && got.q_t.guards_intact());
  }
}

// Matrices with rows of whole packs of 16 bytes, with single elements, with tiles that are not
// full, with memory between them, and at addresses that are not multiples of 16 bytes.
TYPED_TEST(RequestsOfTypes, CodesOfManyMatrices) {
  struct Results {
    Scales q, q_t;
  };
  for (const auto& [q, q_t] :
       {Results{Scales::per_row, Scales::none}, Results{Scales::none, Scales::per_column},
        Results{Scales::per_row, Scales::per_column}, Results{Scales::global, Scales::none},
        Results{Scales::none, Scales::global}, Results{Scales::global, Scales::global}})
    for (const ManyMatrices& m :
         {ManyMatrices{1, 1, 3}, ManyMatrices{64, 32, 40}, ManyMatrices{130, 272, 3},
          ManyMatrices{7, 45, 5}, ManyMatrices{16, 64, 3, 1}, ManyMatrices{5, 24, 4, 1},
          ManyMatrices{20, 64, 4, 0, true}, ManyMatrices{20, 13, 4, 0, true},
          ManyMatrices{9, 48, 2, 0, false, {3, 1}}, ManyMatrices{2, 300, 3, 2, false, {16, 0}},
          ManyMatrices{0, 8, 3}, ManyMatrices{8, 0, 3}}) {
      check_matrices<TypeParam>(m, q, q_t);
      if (::testing::Test::HasFailure()) return;
    }
}

// ---- Which operations compute a request

Request of(const Wanted& wanted) {
  static Inputs<float, float> in(2, 3);
  static Made<float> out(2, 3, {});
  return request_of(in, out, wanted);
}

TEST(Passes, OneWhereAnOperationMakesItAll) {
  for (const quant::OpParts& op : quant::all_ops)
    for (const bool optional : {false, true}) {
      const auto wants = [&](quant::Makes makes) {
        return makes == quant::Makes::yes || (optional && makes == quant::Makes::if_wanted);
      };
      const std::vector<Op> one = {op.op};
      const Rotation rotation =
          op.rotates || op.rotated != quant::Makes::no ? Rotation::hadamard_16 : Rotation::none;
      EXPECT_EQ(quant::passes(of({op.source, op.q, op.q_t, wants(op.sums), wants(op.value),
                                  rotation, wants(op.rotated), op.stochastic, wants(op.scaled)})),
                one)
          << op.name;
    }
}

TEST(Passes, NoneForNothing) {
  EXPECT_TRUE(quant::passes(of({})).empty());
}

TEST(Passes, SeveralForTheRest) {
  using Ops = std::vector<Op>;
  EXPECT_EQ(quant::passes(of({Source::floats, Scales::per_row, Scales::per_column, true})),
            (Ops{Op::rowwise_column_sums, Op::columnwise_transpose}));
  EXPECT_EQ(quant::passes(of({Source::floats, Scales::global, Scales::global, true})),
            (Ops{Op::global_and_transpose, Op::column_sums}));
  EXPECT_EQ(quant::passes(of({Source::gradient, Scales::per_row, Scales::per_column, true})),
            (Ops{Op::activation_backward_quantize, Op::columnwise_transpose}));
  EXPECT_EQ(quant::passes(of({Source::activation, Scales::none, Scales::none, true})),
            (Ops{Op::activation_forward, Op::column_sums}));
  EXPECT_EQ(quant::passes(of({Source::gradient, Scales::per_row, Scales::per_block, true})),
            (Ops{Op::activation_backward_quantize, Op::blockwise_transpose}));
  EXPECT_EQ(quant::passes(of({Source::codes, Scales::per_row, Scales::none, false})),
            (Ops{Op::dequantize_rowwise, Op::rowwise}));
  constexpr Rotation none = Rotation::none;
  EXPECT_EQ(quant::passes(of({Source::gradient, Scales::per_row, Scales::none, true, false, none,
                              false, false, true})),
            (Ops{Op::activation_backward, Op::rowwise_scaled}));
  EXPECT_EQ(quant::passes(of({Source::floats, Scales::per_row, Scales::per_block, true, false, none,
                              false, false, true})),
            (Ops{Op::rowwise_and_blockwise_transpose}));
  constexpr Rotation rotation = Rotation::hadamard_16;
  EXPECT_EQ(quant::passes(
                of({Source::floats, Scales::per_row, Scales::per_column, false, false, rotation})),
            (Ops{Op::rotate, Op::rowwise_and_columnwise_transpose}));
  EXPECT_EQ(
      quant::passes(of({Source::floats, Scales::per_row, Scales::none, true, false, rotation})),
      (Ops{Op::column_sums, Op::rotate_quantize}));
  EXPECT_EQ(
      quant::passes(of({Source::activation, Scales::per_row, Scales::none, true, true, rotation})),
      (Ops{Op::activation_rotate_quantize, Op::column_sums}));
}

}  // namespace
}  // namespace switchback::test
