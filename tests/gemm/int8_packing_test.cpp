// SPDX-License-Identifier: Apache-2.0
// A weight that is packed block by block, from its rows or its columns, gives the same sums as one
// that is packed as a whole.
#include <gtest/gtest.h>

#include <string>

#include "gemm/int8/packed_weight.hpp"
#include "gemm/int8_support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

using gemm_int8::BlockPacker;

// Passes a matrix to the packer in blocks of `rows` rows and `cols` columns.
void hand_over(const BlockPacker& packer, std::int64_t matrix, MatrixView<const std::int8_t> codes,
               std::int64_t rows, std::int64_t cols) {
  for (std::int64_t r = 0; r < codes.rows; r += rows)
    for (std::int64_t c = 0; c < codes.cols; c += cols)
      packer.take({.matrix = matrix,
                   .row = r,
                   .col = c,
                   .codes = {codes.data + r * codes.stride + c, std::min(rows, codes.rows - r),
                             std::min(cols, codes.cols - c), codes.stride}});
}

TEST(Int8Packing, BlocksOfRowsAndOfColumns) {
  Random random(7);
  for (const ContextOptions& options : isa_contexts()) {
    Context context(options);
    for (const std::string& engine : available_engines(context)) {
      if (engine_named(context, engine).pack_rows == nullptr) continue;
      for (const auto& [n, k] :
           {std::pair{1, 1}, {15, 3}, {16, 4}, {17, 5}, {33, 63}, {64, 64}, {65, 67}, {130, 515}}) {
        SCOPED_TRACE(describe(options) + " " + engine + " " + std::to_string(n) + "x" +
                     std::to_string(k));
        constexpr std::int64_t groups = 2;
        Matrix<std::int8_t> b(groups * n, k);
        Matrix<std::int8_t> b_t(groups * k, n);
        fill_codes(b, random);
        for (std::int64_t g = 0; g < groups; ++g)
          for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < k; ++j)
              b_t.set(g * k + j, i, b.get(g * n + i, j));
        Matrix<std::int8_t> a(19, k);
        fill_codes(a, random);
        GroupedGemmArgs args;
        Matrix<std::int8_t> a_twice(2 * a.rows(), k);
        for (std::int64_t r = 0; r < a_twice.rows(); ++r)
          for (std::int64_t c = 0; c < k; ++c)
            a_twice.set(r, c, a.get(r % a.rows(), c));
        const std::int32_t ends[] = {static_cast<std::int32_t>(a.rows()),
                                     static_cast<std::int32_t>(2 * a.rows())};
        const auto product = [&](const PackedWeight& packed, Matrix<std::int32_t>& d) {
          args.groups = Groups::packed(ends);
          args.a = a_twice.view();
          args.packed_b = &packed;
          args.d = d.view();
          args.engine = engine;
          grouped_gemm(context, args);
        };
        PackedWeight whole;
        pack_weights(context, b.view(), groups, whole, engine);
        Matrix<std::int32_t> want(a_twice.rows(), n);
        product(whole, want);
        const auto in_blocks = [&](BlockPacker::Blocks kind, gemm_int8::Stores stores,
                                   std::int64_t rows, std::int64_t cols) {
          BlockPacker packer(kind, stores);
          PackedWeight packed;
          ASSERT_TRUE(packer.begin(context.state(), groups, n, k, packed, engine));
          const bool transposed = kind == BlockPacker::Blocks::of_b_transposed;
          const MatrixView<const std::int8_t> all = transposed ? b_t.view() : b.view();
          for (std::int64_t g = 0; g < groups; ++g) {
            const std::int64_t height = all.rows / groups;
            hand_over(packer, g, {all.data + g * height * all.stride, height, all.cols, all.stride},
                      rows, cols);
          }
          Matrix<std::int32_t> got(a_twice.rows(), n);
          product(packed, got);
          EXPECT_TRUE(same(got, want)) << (transposed ? "columns" : "rows");
        };
        for (const auto& [rows, cols] : {std::pair{16, 64}, {32, 256}, {1024, 1024}})
          for (const auto kind : {BlockPacker::Blocks::of_b, BlockPacker::Blocks::of_b_transposed})
            for (const auto stores : {gemm_int8::Stores::cached, gemm_int8::Stores::streaming})
              in_blocks(kind, stores, rows, cols);
      }
    }
  }
}

}  // namespace
}  // namespace switchback::test
