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

// The request for the wanted results, and memory for all: what is not wanted must not change.
template <class X, class V>
Request request_of(Inputs<X, V>& in, Outputs& out, const Wanted& wanted) {
  constexpr std::int64_t block_rows = 128;
  const std::int64_t rows = in.x.rows();
  const std::int64_t cols = in.x.cols();
  const auto codes = [&](const std::string& name, Scales scales, std::int64_t height,
                         std::int64_t width) {
    return quant::CodesOut{
        scales, out.codes(name, height, width),
        out.floats("absmax of " + name, quant::scale_count(scales, rows, cols, block_rows)),
        scales == Scales::per_block ? block_rows : 0};
  };
  const quant::CodesOut q = codes("q", wanted.q, rows, cols);
  const bool in_blocks = wanted.q_t == Scales::per_block;
  quant::CodesOut q_t =
      codes("q_t", wanted.q_t, cols, in_blocks ? whole_block_rows(rows, block_rows) : rows);
  if (wanted.q == Scales::global && wanted.q_t == Scales::global) q_t.absmax = q.absmax;
  const auto sums = out.floats("sums", cols, 0.25f);
  const MatrixView<V> value = out.matrix<V>("value", rows, cols);
  const MatrixView<float> rotated = out.matrix<float>("rotated", rows, cols);
  Request r;
  r.x = in.x.view();
  if (wanted.source == Source::codes) {
    r.x = in.codes.view();
    r.absmax_x = in.scales.span();
  } else if (wanted.source != Source::floats) {
    r.activation = Activation::gelu_tanh;
    if (wanted.source == Source::gradient) r.g = in.g.view();
  }
  if (wanted.q != Scales::none) r.q = q;
  if (wanted.q_t != Scales::none) r.q_t = q_t;
  if (wanted.sums) {
    r.column_sums = sums;
    r.accumulate = true;
  }
  if (wanted.value) r.value = value;
  r.rotation = wanted.rotation;
  if (wanted.rotated) r.rotated = rotated;
  if (wanted.scaled) r.column_scales = in.column_scales.span();
  if (wanted.stochastic) r.stochastic = StochasticRounding{5, 6, 7, 8};
  return r;
}

// Runs reference::run() as the threads of a Context do.
void run_reference(const Request& request) {
  reference().state().threads.for_each(1,
                                       [&](std::int64_t, int) { quant::reference::run(request); });
}

// Compares requests in every Context with the reference, which makes all results in a single call.
template <class X, class V>
void check_requests(Inputs<X, V>& in, const std::vector<Wanted>& combinations, Layout layout = {}) {
  for (const Wanted& wanted : combinations) {
    expect_bits_of_reference(describe(wanted), layout, [&](Context& context, Outputs& out) {
      const Request request = request_of(in, out, wanted);
      if (&context == &reference())
        run_reference(request);
      else
        quant::run(context.state(), request);
    });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RequestsEngines, EveryCombination) {
  Inputs<float, float> in(37, 45);
  check_requests(in, all_combinations());
}

// The quantized matrix v has another type than x: it is a gradient in f32.
TEST(RequestsEngines, EveryCombinationOfTwoTypes) {
  std::vector<Wanted> combinations;
  for (const Wanted& wanted : all_combinations())
    if (wanted.source == Source::gradient) combinations.push_back(wanted);
  Inputs<half, float> f16(21, 33);
  check_requests(f16, combinations);
  Inputs<bfloat16, float> bf16(21, 33);
  check_requests(bf16, combinations);
}

TEST(RequestsEngines, EveryCombinationOfRotatedCodes) {
  std::vector<Wanted> combinations = all_combinations(Rotation::hadamard_16);
  for (Wanted wanted : all_combinations(Rotation::hadamard_16)) {
    wanted.rotated = true;
    combinations.push_back(wanted);
  }
  Inputs<float, float> in(37, 48);
  check_requests(in, combinations);
}

// What a layer requests of a gradient: stochastic codes, column sums, and the gradient itself if it
// is derived from another one.
TEST(RequestsEngines, StochasticCodes) {
  std::vector<Wanted> combinations;
  for (Wanted wanted : all_combinations()) {
    wanted.stochastic = true;
    if (wanted.q == Scales::per_row && wanted.q_t == Scales::none) combinations.push_back(wanted);
  }
  Inputs<float, float> in(37, 45);
  check_requests(in, combinations);
}

// A layer with one int8 W for both products requests codes of the gradient after its columns were
// scaled. All other results are of the gradient itself.
TEST(RequestsEngines, ScaledCodes) {
  std::vector<Wanted> combinations;
  for (Wanted wanted : all_combinations()) {
    wanted.scaled = true;
    if (wanted.q == Scales::per_row && wanted.q_t != Scales::global) combinations.push_back(wanted);
    wanted.stochastic = true;
    if (wanted.source == Source::floats && wanted.q == Scales::per_row &&
        wanted.q_t == Scales::none)
      combinations.push_back(wanted);
  }
  Inputs<float, float> in(37, 45);
  check_requests(in, combinations);
}

template <class T>
class RequestsOfTypes : public ::testing::Test {};
TYPED_TEST_SUITE(RequestsOfTypes, FloatTypes);

// The operands of an int8 weight gradient: both layouts of a matrix' codes, and its column sums.
TYPED_TEST(RequestsOfTypes, BothLayoutsAndColumnSums) {
  std::vector<Wanted> wanted;
  for (const Source source : {Source::floats, Source::activation, Source::gradient})
    for (const Scales q_t : {Scales::per_column, Scales::per_block})
      wanted.push_back({source, Scales::per_row, q_t, true, false});
  for (const auto& [rows, cols] : {Size{1, 1}, {129, 40}, {300, 272}, {0, 8}, {8, 0}, {0, 0}}) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check_requests(in, wanted);
  }
  Inputs<TypeParam, TypeParam> in(70, 50, {3, 1});
  check_requests(in, wanted, {5, 1});
}

// Codes of rows with scaled columns: alone, with column sums, and rounded stochastically.
std::vector<Wanted> scaled_rows() {
  Wanted alone = {Source::floats, Scales::per_row};
  alone.scaled = true;
  Wanted with_sums = alone;
  with_sums.sums = true;
  Wanted stochastic = alone;
  stochastic.stochastic = true;
  return {alone, with_sums, stochastic};
}

TYPED_TEST(RequestsOfTypes, ScaledCodes) {
  const Size sizes[] = {{1, 1},     {2, 15},    {3, 16},    {5, 63},   {5, 64},   {5, 65},
                        {129, 40},  {300, 272}, {1, 9000},  {3, 4104}, {70, 512}, {130, 2056},
                        {2, 16384}, {2, 16392}, {1, 16392}, {0, 8},    {0, 0}};
  for (const auto& [rows, cols] : sizes) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check_requests(in, scaled_rows());
  }
  Inputs<TypeParam, TypeParam> in(70, 50, {3, 1});
  check_requests(in, scaled_rows(), {5, 1});
}

// On a device, one or several warps compute the scales of such rows.
TYPED_TEST(RequestsOfTypes, ScaledRowsOfSeveralWarps) {
  for (const auto& [rows, cols] : {Size{3, 520}, {41, 1032}, {6, 4096}}) {
    Inputs<TypeParam, TypeParam> in(rows, cols);
    check_requests(in, scaled_rows());
  }
}

// If a scaled element overflows, it is an Inf, and its row has no codes. Other rows have NaN, zeros
// and subnormals.
TEST(RequestsEngines, UnusualScaledRows) {
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
    check_requests(in, scaled_rows());
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
  const Matrix<T> x = normal_of_size<T>(all_rows, m.columns ? m.count * m.cols : m.cols, m.layout);
  const bool shared = q == Scales::global && q_t == Scales::global;
  const auto what = ::testing::Message()
                    << m.count << " of [" << m.rows << "," << m.cols << "] gap " << m.gap
                    << (m.columns ? " side by side" : "") << " q " << static_cast<int>(q) << " q_t "
                    << static_cast<int>(q_t);
  expect_bits_of_reference(what.GetString(), m.layout, [&](Context& context, Outputs& out) {
    // Codes of `count` matrices from matrix `i` on, whose height is `height`.
    const auto of_all = [&](const char* name, Scales scales, std::int64_t height,
                            std::int64_t width) {
      const MatrixView<std::int8_t> codes = out.codes(name, m.count * (height + m.gap), width);
      const std::int64_t each = quant::scale_count(scales, m.rows, m.cols);
      const auto absmax = out.floats(std::string("absmax of ") + name, m.count * each);
      return [=, &m](std::int64_t i, std::int64_t count) {
        const std::int64_t step = (height + m.gap) * codes.stride;
        return quant::CodesOut{scales,
                               {codes.data + i * step, height, width, codes.stride},
                               absmax.subspan(static_cast<std::size_t>(i * each),
                                              static_cast<std::size_t>(count * each)),
                               0,
                               step};
      };
    };
    const auto all_q = of_all("q", q, m.rows, m.cols);
    const auto all_q_t = of_all("q_t", q_t, m.cols, m.rows);
    const auto request = [&](std::int64_t i, std::int64_t count) {
      const Corner at(m, i);
      Request r;
      r.x =
          MatrixView<const T>(x.data() + at.row * x.stride() + at.col, m.rows, m.cols, x.stride());
      r.matrices = {count, Corner(m, 1).row * x.stride() + Corner(m, 1).col};
      if (q != Scales::none) r.q = all_q(i, count);
      if (q_t != Scales::none) r.q_t = all_q_t(i, count);
      if (shared) r.q_t.absmax = r.q.absmax;
      return r;
    };
    if (&context != &reference()) return quant::run(context.state(), request(0, m.count));
    for (std::int64_t i = 0; i < m.count; ++i)
      run_reference(request(i, 1));
  });
}

// Matrices with rows of whole packs of 16 bytes, with single elements, with tiles that are not
// full, with memory between them, and at addresses that are not multiples of 16 bytes.
TYPED_TEST(RequestsOfTypes, CodesOfManyMatrices) {
  for (const auto& [q, q_t] : {std::pair{Scales::per_row, Scales::none},
                               {Scales::none, Scales::per_column},
                               {Scales::per_row, Scales::per_column},
                               {Scales::global, Scales::none},
                               {Scales::none, Scales::global},
                               {Scales::global, Scales::global}})
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

std::vector<Op> passes_of(const Wanted& wanted) {
  Inputs<float, float> in(2, 3);
  Outputs out;
  return quant::passes(request_of(in, out, wanted));
}

TEST(Passes, OneWhereAnOperationMakesItAll) {
  for (const quant::OpParts& op : quant::all_ops)
    for (const bool optional : {false, true}) {
      const auto wants = [&](quant::Makes makes) {
        return makes == quant::Makes::yes || (optional && makes == quant::Makes::if_wanted);
      };
      const Rotation rotation =
          op.rotates || op.rotated != quant::Makes::no ? Rotation::hadamard_16 : Rotation::none;
      EXPECT_EQ(passes_of({op.source, op.q, op.q_t, wants(op.sums), wants(op.value), rotation,
                           wants(op.rotated), op.stochastic, wants(op.scaled)}),
                std::vector<Op>{op.op})
          << op.name;
    }
}

TEST(Passes, SeveralForTheRest) {
  using Ops = std::vector<Op>;
  EXPECT_EQ(passes_of({}), Ops());
  EXPECT_EQ(passes_of({Source::floats, Scales::global, Scales::global, true}),
            (Ops{Op::global_and_transpose, Op::column_sums}));
  EXPECT_EQ(passes_of({Source::gradient, Scales::per_row, Scales::per_block, true}),
            (Ops{Op::activation_backward_quantize, Op::blockwise_transpose}));
  EXPECT_EQ(passes_of({Source::codes, Scales::per_row}),
            (Ops{Op::dequantize_rowwise, Op::rowwise}));
  EXPECT_EQ(passes_of({Source::floats, Scales::per_row, Scales::per_column, false, false,
                       Rotation::hadamard_16}),
            (Ops{Op::rotate, Op::rowwise_and_columnwise_transpose}));
  EXPECT_EQ(passes_of({Source::activation, Scales::per_row, Scales::none, true, true,
                       Rotation::hadamard_16}),
            (Ops{Op::activation_rotate_quantize, Op::column_sums}));
}

}  // namespace
}  // namespace switchback::test
