// SPDX-License-Identifier: Apache-2.0
// grouped_quantize_rowwise, and requests for every combination of results of grouped rows: they
// equal, for each group, the request for its rows alone, bit for bit.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/context_state.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/support.hpp"
#include "quant/backends.hpp"
#include "quant/dispatch.hpp"
#include "support/generators.hpp"

namespace switchback::test {
namespace {

using quant::Request;
using quant::Scales;
using quant::Source;

constexpr std::int64_t block_rows = 128;

struct Wanted {
  Source source = Source::floats;
  bool q = false, blocks = false, sums = false, value = false;
  Rotation rotation = Rotation::none;
  bool scaled = false;

  // Whether grouped_quantize_rowwise computes these results, and no others.
  [[nodiscard]] bool is_of_entry() const {
    return source == Source::floats && q && !blocks && !sums && !value &&
           rotation == Rotation::none && !scaled;
  }
};

std::string results_of(const Wanted& w) {
  return "source " + std::to_string(static_cast<int>(w.source)) + (w.q ? " q" : "") +
         (w.blocks ? " blocks" : "") + (w.sums ? " sums" : "") + (w.value ? " value" : "") + " " +
         std::string(rotation_name(w.rotation)) + (w.scaled ? " scaled" : "");
}

// All combinations of results to request. Rotations need columns in groups of 16, so they are
// optional.
std::vector<Wanted> all_combinations(std::vector<Source> sources, bool rotations) {
  std::vector<Wanted> all;
  for (const Source source : sources)
    for (int results = 1; results < 16; ++results) {
      Wanted wanted = {source, (results & 1) != 0, (results & 2) != 0, (results & 4) != 0,
                       (results & 8) != 0};
      if (wanted.value && source == Source::floats) continue;
      all.push_back(wanted);
      if (wanted.q) {
        wanted.scaled = true;
        all.push_back(wanted);
        wanted.scaled = false;
      }
      wanted.rotation = Rotation::hadamard_16;
      if (rotations && (wanted.q || wanted.blocks)) all.push_back(wanted);
    }
  return all;
}

// Which elements of x a slot reads: the row with its number, a row by index, the columns of its
// group, or both of these.
enum class Reads { in_place, index, columns, index_and_columns };

template <class X, class V>
struct Inputs {
  const SomeGroups& groups;
  std::int64_t cols;
  Reads reads;
  std::int64_t column_stride = 0;
  Vector<std::int32_t> index;
  Matrix<X> x;
  Matrix<V> g;
  Matrix<float> scales;

  Inputs(const SomeGroups& groups_, Reads reads_, std::int64_t cols_, Layout layout)
      : groups(groups_),
        cols(cols_),
        reads(reads_),
        column_stride(has_columns() ? cols + 8 : 0),
        x(rows_of_x(), has_columns() ? groups_.count() * column_stride : cols_, layout),
        g(groups_.slots, cols_, layout),
        scales(1, groups_.count() * cols_, {0, layout.misalignment_bytes}) {
    Random random(static_cast<std::uint64_t>(groups.slots * 1000 + cols));
    fill_normal(x, random);
    fill_normal(g, random);
    fill_normal(scales, random, 3.0f);
    if (x.rows() > 4) {
      x.set(1, 0, X(std::numeric_limits<float>::infinity()));
      x.set(4, x.cols() - 1, X(std::numeric_limits<float>::quiet_NaN()));
    }
    if (reads == Reads::index || reads == Reads::index_and_columns)
      for (std::int64_t slot = 0; slot < groups.slots; ++slot)
        // Slots that belong to no group may have any index.
        index.push_back(groups.has(slot) ? static_cast<std::int32_t>(random.below(x.rows())) : -9);
  }

  [[nodiscard]] bool has_columns() const {
    return reads == Reads::columns || reads == Reads::index_and_columns;
  }
  [[nodiscard]] std::int64_t rows_of_x() const {
    return reads == Reads::in_place ? groups.slots : reads == Reads::columns ? groups.rows : 11;
  }
  [[nodiscard]] GroupedRows rows() const {
    return {
        .data = x.view(), .index = {index.data(), index.size()}, .column_stride = column_stride};
  }
  // A copy of the elements that one group reads.
  [[nodiscard]] Matrix<X> rows_of(std::int64_t group) const {
    const std::int64_t begin = groups.begins[static_cast<std::size_t>(group)];
    Matrix<X> rows(groups.counts[static_cast<std::size_t>(group)], cols);
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
      const std::int64_t row = !index.empty()  ? index[static_cast<std::size_t>(begin + r)]
                               : has_columns() ? r
                                               : begin + r;
      for (std::int64_t c = 0; c < cols; ++c)
        rows.set(r, c, x.get(row, group * column_stride + c));
    }
    return rows;
  }
};

// The results of a request for grouped rows, or for the rows of one group.
template <class V>
struct Outputs {
  Matrix<std::int8_t> q, q_t;
  Matrix<float> absmax, absmax_t, sums;
  Matrix<V> value;

  Outputs(std::int64_t rows, std::int64_t cols, std::int64_t groups, std::int64_t blocks,
          Layout layout = {})
      : q(rows, cols, layout),
        q_t(cols, blocks * block_rows, layout),
        absmax(1, rows, {0, layout.misalignment_bytes}),
        absmax_t(1, blocks * cols, {0, layout.misalignment_bytes}),
        sums(1, groups * cols, {0, layout.misalignment_bytes}),
        value(rows, cols, layout) {
    fill_constant(q, std::int8_t{101});
    fill_constant(q_t, std::int8_t{101});
    fill_constant(absmax, -5.0f);
    fill_constant(absmax_t, -5.0f);
    fill_constant(sums, 0.25f);
    fill_constant(value, V(-7.0f));
  }
  [[nodiscard]] bool guards_intact() const {
    return q.guards_intact() && q_t.guards_intact() && absmax.guards_intact() &&
           absmax_t.guards_intact() && sums.guards_intact() && value.guards_intact();
  }
};

std::span<float> all_of(Matrix<float>& m) {
  return {m.data(), static_cast<std::size_t>(m.cols())};
}

template <class V>
Request request_of(const Wanted& wanted, Outputs<V>& out, bool accumulate) {
  Request r;
  if (wanted.source != Source::floats) r.activation = Activation::gelu_tanh;
  if (wanted.q) r.q = {Scales::per_row, out.q.view(), all_of(out.absmax)};
  if (wanted.blocks) r.q_t = {Scales::per_block, out.q_t.view(), all_of(out.absmax_t), block_rows};
  if (wanted.sums) r.column_sums = all_of(out.sums);
  r.accumulate = accumulate;
  if (wanted.value) r.value = out.value.view();
  r.rotation = wanted.rotation;
  return r;
}

// A copy of a part of a matrix, from this row and column on.
template <class T>
Matrix<T> part(const Matrix<T>& m, std::int64_t row, std::int64_t col, std::int64_t rows,
               std::int64_t cols) {
  Matrix<T> copy(rows, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      copy.set(r, c, m.get(row + r, col + c));
  return copy;
}

// Whether all elements have the bits of the value.
template <class T>
bool all_are(const Matrix<T>& m, T value) {
  Matrix<T> want(m.rows(), m.cols());
  fill_constant(want, value);
  return m == want;
}

template <class X, class V>
void check_groups(Context& context, const Inputs<X, V>& in, const Wanted& wanted, bool accumulate,
                  const Outputs<V>& got) {
  const std::int64_t cols = in.cols;
  std::int64_t block = 0;
  for (std::int64_t group = 0; group < in.groups.count(); ++group) {
    SCOPED_TRACE("group " + std::to_string(group));
    const std::int64_t begin = in.groups.begins[static_cast<std::size_t>(group)];
    const Matrix<X> x = in.rows_of(group);
    const std::int64_t rows = x.rows();
    const std::int64_t blocks = whole_block_rows(rows, block_rows) / block_rows;
    Outputs<V> want(rows, cols, 1, blocks);
    Request request = request_of(wanted, want, accumulate);
    request.x = x.view();
    const Matrix<V> g = part(in.g, begin, 0, rows, cols);
    if (wanted.source == Source::gradient) request.g = g.view();
    if (wanted.scaled)
      request.column_scales = {in.scales.data() + group * cols, static_cast<std::size_t>(cols)};
    quant::run(context.state(), request);
    context.synchronize();
    EXPECT_TRUE(part(got.q, begin, 0, rows, cols) == want.q) << "q";
    EXPECT_TRUE(part(got.absmax, 0, begin, 1, rows) == want.absmax) << "absmax";
    EXPECT_TRUE(part(got.value, begin, 0, rows, cols) == want.value) << "value";
    EXPECT_TRUE(part(got.sums, 0, group * cols, 1, cols) == want.sums) << "sums";
    EXPECT_TRUE(part(got.q_t, 0, block * block_rows, cols, blocks * block_rows) == want.q_t)
        << "q of blocks";
    EXPECT_TRUE(part(got.absmax_t, 0, block * cols, 1, blocks * cols) == want.absmax_t)
        << "absmax of blocks";
    block += blocks;
  }
  const std::int64_t other = got.absmax_t.cols() / cols - block;
  const bool zeroed = wanted.blocks && !on_cpu();
  EXPECT_TRUE(all_are(part(got.q_t, 0, block * block_rows, cols, other * block_rows),
                      zeroed ? std::int8_t{0} : std::int8_t{101}));
  EXPECT_TRUE(all_are(part(got.absmax_t, 0, block * cols, 1, other * cols), zeroed ? 0.0f : -5.0f));
}

// Copies the groups of a layout, which may be in memory that only the device reads.
std::vector<blockwise::BlockGroup> groups_of(Context& context, const grouped::BlockLayout& layout) {
  if (on_cpu()) return {layout.groups.begin(), layout.groups.end()};
  std::vector<blockwise::BlockGroup> groups(layout.groups.size());
  const std::size_t bytes = layout.groups.size_bytes();
  if (bytes > 0)
    context.state().runtime->copy(groups.data(), bytes, layout.groups.data(), bytes, bytes, 1);
  context.synchronize();
  return groups;
}

// Checks that each group begins at the block after the last block of the previous group.
void check_layout(Context& context, const SomeGroups& groups, const grouped::BlockLayout& layout) {
  const std::vector<blockwise::BlockGroup> found = groups_of(context, layout);
  ASSERT_EQ(static_cast<std::int64_t>(found.size()), groups.count());
  std::int64_t block = 0;
  for (std::size_t g = 0; g < found.size(); ++g) {
    EXPECT_EQ(found[g].first_block, block);
    EXPECT_EQ(found[g].rows, groups.counts[g]);
    block += whole_block_rows(groups.counts[g], block_rows) / block_rows;
  }
  EXPECT_LE(block, layout.blocks);
}

template <class X, class V>
void check_requests(const SomeGroups& groups, Reads reads, std::int64_t cols,
                    const std::vector<Wanted>& combinations, Layout layout) {
  const Inputs<X, V> in(groups, reads, cols, layout);
  for (auto& [name, context] : contexts()) {
    ContextState& state = context.state();
    core::Workspace::Frame frame(state.workspace);
    const grouped::BlockLayout blocks =
        grouped::block_layout(state, frame, groups.view(), groups.slots, block_rows);
    check_layout(context, groups, blocks);
    bool accumulate = false;
    for (const Wanted& wanted : combinations) {
      SCOPED_TRACE(name + " groups " + groups.name + " reads " +
                   std::to_string(static_cast<int>(reads)) + ": " + results_of(wanted));
      Outputs<V> got(groups.slots, cols, groups.count(), blocks.blocks, layout);
      Request request = request_of(wanted, got, accumulate);
      if (wanted.source == Source::gradient) request.g = in.g.view();
      if (wanted.scaled)
        request.column_scales = {in.scales.data(), static_cast<std::size_t>(in.scales.cols())};
      if (wanted.is_of_entry())
        grouped_quantize_rowwise(context, groups.view(), in.rows(), got.q.view(),
                                 all_of(got.absmax));
      else
        grouped::run(state, groups.view(), groups.slots, in.rows(), request, blocks);
      context.synchronize();
      EXPECT_TRUE(got.guards_intact());
      check_groups(context, in, wanted, accumulate, got);
      for (std::int64_t slot = 0; slot < groups.slots && on_cpu(); ++slot) {
        if (groups.has(slot)) continue;
        EXPECT_TRUE(all_are(part(got.q, slot, 0, 1, cols), std::int8_t{101})) << slot;
        EXPECT_EQ(got.absmax.get(0, slot), -5.0f) << slot;
        EXPECT_TRUE(all_are(part(got.value, slot, 0, 1, cols), V(-7.0f))) << slot;
      }
      if (::testing::Test::HasFailure()) return;
      accumulate = !accumulate;
    }
  }
}

// Empty groups at the beginning, in the middle and at the end, a group of several blocks, and slots
// without a group.
std::vector<SomeGroups> some_groups() {
  std::vector<SomeGroups> some;
  some.push_back(packed_groups({0, 1, 5, 0, 131, 0}, 3));
  some.push_back(strided_groups(9, 4, {0, 9, 3, 1}));
  if (on_emulated()) return some;
  some.push_back(packed_groups({7}));
  some.push_back(packed_groups({0, 0, 0}, 4));
  some.push_back(packed_groups({2, 1, 0, 128, 3}));
  some.push_back(strided_groups(7, 3));
  some.push_back(strided_groups(140, 2, {140, 0}));
  return some;
}

const std::vector<Source> reading_x = {Source::floats, Source::activation};
const std::vector<Source> all_sources = {Source::floats, Source::activation, Source::gradient};

template <class T>
class GroupedRequests : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(GroupedRequests, Types);

TYPED_TEST(GroupedRequests, RowsInPlace) {
  for (const SomeGroups& groups : some_groups()) {
    check_requests<TypeParam, TypeParam>(groups, Reads::in_place, 37,
                                         all_combinations(all_sources, false), {1, 1});
    check_requests<TypeParam, TypeParam>(groups, Reads::in_place, 48,
                                         all_combinations(all_sources, true), {});
  }
}

TYPED_TEST(GroupedRequests, RowsByIndex) {
  for (const SomeGroups& groups : some_groups())
    check_requests<TypeParam, TypeParam>(groups, Reads::index, 32,
                                         all_combinations(reading_x, true), {});
}

TYPED_TEST(GroupedRequests, GroupsSideBySide) {
  for (const SomeGroups& groups : {strided_groups(9, 4), strided_groups(9, 4, {0, 9, 3, 1})})
    check_requests<TypeParam, TypeParam>(groups, Reads::columns, 32,
                                         all_combinations(reading_x, true), {});
  check_requests<TypeParam, TypeParam>(packed_groups({2, 0, 3}, 1), Reads::index_and_columns, 21,
                                       all_combinations(reading_x, false), {0, 1});
}

// Long rows, of which each thread of a GPU reads several vectors.
TYPED_TEST(GroupedRequests, LongRows) {
  const auto check = [](std::int64_t cols, const std::vector<Wanted>& combinations) {
    check_requests<TypeParam, TypeParam>(packed_groups({2, 0, 3}, 1), Reads::index, cols,
                                         combinations, {});
  };
  check(520, {{.q = true}, {.q = true, .scaled = true}, {.q = true, .sums = true, .scaled = true}});
  if (on_cpu()) return;
  check(16384, {{.q = true, .scaled = true}, {.q = true, .sums = true, .scaled = true}});
  check(16392, {{.q = true, .scaled = true}});
  check(40000, {{.q = true}});
}

// Requests for a gradient whose type is not that of x.
TEST(GroupedRequestsOfTwoTypes, Gradients) {
  check_requests<half, float>(packed_groups({0, 5, 2, 0}, 1), Reads::in_place, 48,
                              all_combinations({Source::gradient}, true), {});
}

// A GPU clamps invalid ends of groups, which here would need more blocks than there are, and
// reports them.
TEST(GroupedRequestsOfInvalidGroups, BlocksStayInside) {
  if (on_cpu()) GTEST_SKIP() << "the host checks its groups";
  SomeGroups groups = packed_groups({1024, 0, 0});
  groups.ends[1] = 0;
  const Inputs<half, half> in(groups, Reads::in_place, 3, {});
  for (auto& [name, context] : contexts()) {
    core::Workspace::Frame frame(context.state().workspace);
    const grouped::BlockLayout layout =
        grouped::block_layout(context.state(), frame, groups.view(), groups.slots, block_rows);
    Outputs<half> got(groups.slots, in.cols, groups.count(), layout.blocks);
    Wanted wanted;
    wanted.blocks = true;
    grouped::run(context.state(), groups.view(), groups.slots, in.rows(),
                 request_of(wanted, got, false), layout);
    EXPECT_THROW(context.synchronize(), Error);
    EXPECT_TRUE(got.guards_intact());
    for (const blockwise::BlockGroup& group : groups_of(context, layout)) {
      EXPECT_GE(group.first_block, 0);
      EXPECT_LE(group.first_block + (group.rows + block_rows - 1) / block_rows, layout.blocks);
    }
  }
}

}  // namespace
}  // namespace switchback::test
