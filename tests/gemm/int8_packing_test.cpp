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
        const Matrix<std::int8_t> b = random_codes(groups * n, k, random);
        Matrix<std::int8_t> b_t(groups * k, n);
        for (std::int64_t g = 0; g < groups; ++g)
          for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < k; ++j)
              b_t.set(g * k + j, i, b.get(g * n + i, j));
        const Matrix<std::int8_t> a = random_codes(2 * 19, k, random);
        const std::int32_t ends[] = {19, 38};
        const auto product = [&](const PackedWeight& packed) {
          Matrix<std::int32_t> d(a.rows(), n);
          GroupedGemmArgs args;
          args.groups = Groups::packed(ends);
          args.a = a.view();
          args.packed_b = &packed;
          args.d = d.view();
          args.engine = engine;
          grouped_gemm(context, args);
          return d;
        };
        PackedWeight whole;
        pack_weights(context, b.view(), groups, whole, engine);
        const Matrix<std::int32_t> want = product(whole);
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
          EXPECT_TRUE(same(product(packed), want)) << (transposed ? "columns" : "rows");
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
