// SPDX-License-Identifier: Apache-2.0
// Refused arguments of grouped operations: the message names argument, value and rule, and nothing
// is written.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/error.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

void refused(const std::string& message, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "accepted; want: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

class GroupedValidation : public ::testing::Test {
 protected:
  GroupedValidation() : context(cpu_options()) {
    args.groups = groups.view();
    args.a = a.view();
    args.b = b.view();
    args.d = d.view();
    args.absmax_a = {absmax_a.data(), absmax_a.size()};
    args.absmax_b = {absmax_b.data(), absmax_b.size()};
  }

  void refused_gemm(const std::string& message) {
    refused("grouped_gemm: " + message, [&] { grouped_gemm(context, args); });
    for (std::int64_t r = 0; r < d.rows(); ++r)
      for (std::int64_t c = 0; c < d.cols(); ++c)
        EXPECT_EQ(d.get(r, c), 0.0f);
  }

  Context context;
  SomeGroups groups = packed_groups({2, 3, 0});
  Matrix<std::int8_t> a{5, 8}, b{12, 8};
  Matrix<float> d{5, 4};
  Vector<float> absmax_a{Vector<float>(5)}, absmax_b{Vector<float>(12)};
  GroupedGemmArgs args;
};

TEST_F(GroupedValidation, EndsThatFallOrExceed) {
  groups.ends[1] = 1;
  refused_gemm("groups.ends[1] = 1; it must be at least the previous end, 2");
  groups.ends[1] = 6;
  refused_gemm("groups.ends[1] = 6; it must be at most M = 5");
  groups.ends[0] = -1;
  refused_gemm("groups.ends[0] = -1; it must be at least the previous end, 0");
}

TEST_F(GroupedValidation, CountsAndRows) {
  args.groups.count = 2;
  refused_gemm("groups.ends holds 3 numbers; it must hold groups.count = 2");
  args.groups = Groups::strided(3, 2);
  refused_gemm("M = 5; it must be groups.count · groups.rows = 3 · 2");
  args.groups = Groups::strided(-1, 2);
  refused_gemm("groups.count = -1; it must be from 0 to 2^31 - 1");
  SomeGroups strided = strided_groups(5, 1, {6});
  args.groups = strided.view();
  refused_gemm("groups.used[0] = 6; it must be from 0 to groups.rows = 5");
  args.groups = groups.view();
  args.groups.rows = 4;
  refused_gemm("groups has ends and also rows or used; packed groups have only ends");
}

TEST_F(GroupedValidation, Weights) {
  Matrix<std::int8_t> eleven(11, 8);
  args.b = eleven.view();
  refused_gemm("b has 11 rows; it must have N rows for each of the 3 groups");
  PackedWeight packed;
  args.b = {};
  args.packed_b = &packed;
  refused_gemm("packed_b is empty; call pack_weights first");
  pack_weight(context, b.view(), packed);
  refused_gemm("packed_b holds the matrices of 1 groups; groups.count is 3");
  pack_weights(context, b.view(), 3, packed, "reference");
  args.engine = "reference";
  GemmArgs single{.a = a.view(), .packed_b = &packed, .d = d.view()};
  refused("gemm: packed_b holds the matrices of 3 groups; grouped_gemm takes them",
          [&] { gemm(context, single); });
}

TEST_F(GroupedValidation, ScalesAndOutputs) {
  args.absmax_b = args.absmax_b.first(5);
  refused_gemm("absmax_b holds 5 floats; it must hold G·N = 12 or G = 3");
  args.absmax_b = {absmax_b.data(), 12};
  args.d_column_stride = 4;
  refused_gemm("d_column_stride = 4 with packed groups; it needs strided groups");
  args.d_column_stride = 0;
  Matrix<std::int32_t> sums(5, 4);
  args.d = sums.view();
  refused_gemm("d has dtype s32; absmax_a, absmax_b and bias must be empty");
}

TEST_F(GroupedValidation, RowsThatSlotsRead) {
  Matrix<float> x(5, 8);
  Vector<std::int32_t> index(5);
  index[3] = 5;
  GroupedRows rows{.data = x.view(), .index = {index.data(), index.size()}};
  const auto quantize = [&] {
    grouped_quantize_rowwise(context, groups.view(), rows, a.view(),
                             {absmax_a.data(), absmax_a.size()});
  };
  refused("grouped_quantize_rowwise: x.index[3] = 5; it must be from 0 to x's last row, 4",
          quantize);
  rows.index = {index.data(), 4};
  refused("grouped_quantize_rowwise: x.index holds 4 numbers; it must hold M = 5", quantize);
  rows.index = {};
  rows.column_stride = 8;
  refused(
      "grouped_quantize_rowwise: x has 8 columns; the last of 3 groups reads 8 columns, starting "
      "at column 2 · 8",
      quantize);
  rows.column_stride = 0;
  Matrix<float> four(4, 8);
  rows.data = four.view();
  refused("grouped_quantize_rowwise: x has 4 rows; it must have at least 5, which the slots read",
          quantize);
}

TEST_F(GroupedValidation, Combine) {
  Matrix<std::int32_t> slots(2, 2);
  slots.set(1, 1, 5);
  Matrix<float> out(2, 4);
  CombineArgs combined{.y = d.view(), .slots = slots.view(), .out = out.view()};
  refused("combine: slots[1,1] = 5; it must be at most y's last row, 4",
          [&] { combine(context, combined); });
}

}  // namespace
}  // namespace switchback::test
