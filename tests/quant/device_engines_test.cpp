// SPDX-License-Identifier: Apache-2.0
// Tests of the CUDA kernels of quantization: each way in which they divide a matrix, at each size
// of thread block, and the capture of operations in graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "quant/backends.hpp"
#include "quant/config.hpp"
#include "quant/dispatch.hpp"
#include "quant/every_op.hpp"
#include "support/contexts.hpp"
#include "support/device.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

template <class T>
class DeviceEngines : public ::testing::Test {
 protected:
  static constexpr std::int64_t pack = 16 / static_cast<std::int64_t>(sizeof(T));

  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "tests devices other than the CPU";
    context_.emplace(device_options());
  }
  // Sets the number of threads of a thread block; 0: the default.
  void block_threads(std::int64_t threads) {
    quant::Config config;
    config.engine = quant::Engine::cuda;
    config.block_threads = threads;
    configure(*context_, config);
  }
  std::int64_t multiprocessors() { return context_->state().runtime->info().multiprocessors; }

  template <class Operations>
  void check(Layout layout, const Operations& operations) {
    expect_same(results_of(*context_, layout, operations),
                results_of(reference(), layout, operations));
  }
  void check_sums(const Matrix<T>& x, Layout layout = {}) {
    for (const bool accumulate : {false, true})
      check(layout, [&](Context& context, Outputs& out) {
        const std::span<float> sums = out.floats("sums", x.cols());
        for (std::size_t c = 0; c < sums.size(); ++c)
          core::store(sums.data(), static_cast<std::int64_t>(c),
                      c % 3 == 0 ? -0.0f : static_cast<float>(c));
        quantize_rowwise_column_sums(context, x.view(), out.codes("q", x.rows(), x.cols()),
                                     out.floats("absmax", x.rows()), sums, accumulate);
      });
  }
  void check_rowwise(const Matrix<T>& x, Layout layout = {}) {
    check(layout, [&](Context& context, Outputs& out) {
      quantize_rowwise(context, x.view(), out.codes("q", x.rows(), x.cols()),
                       out.floats("absmax", x.rows()));
    });
  }
  // Checks codes of blocks of rows, alone, with codes of rows, and with codes of scaled rows.
  void check_blocks(const Matrix<T>& x, std::int64_t block_rows, Layout layout = {}) {
    SCOPED_TRACE(text_of(x) + " in blocks of " + std::to_string(block_rows));
    Floats scales(x.cols(), layout.misalignment_bytes);
    for (std::int64_t c = 0; c < x.cols(); ++c)
      scales.values.set(0, c, static_cast<float>(c % 37) * 0.3f - 4.0f);
    check(layout, [&](Context& context, Outputs& out) {
      const std::int64_t padded = whole_block_rows(x.rows(), block_rows);
      const std::int64_t blocks = padded / block_rows;
      quantize_blockwise_transpose(context, x.view(), block_rows,
                                   out.codes("q_t", x.cols(), padded),
                                   out.floats("absmax of q_t", blocks * x.cols()));
      quantize_rowwise_and_blockwise_transpose(
          context, x.view(), out.codes("q", x.rows(), x.cols()),
          out.floats("absmax of q", x.rows()), block_rows,
          out.codes("q_t with q", x.cols(), padded),
          out.floats("absmax of q_t with q", blocks * x.cols()));
      quant::run(
          context.state(),
          {.x = x.view(),
           .q = {quant::Scales::per_row, out.codes("scaled q", x.rows(), x.cols()),
                 out.floats("absmax of scaled q", x.rows())},
           .q_t = {quant::Scales::per_block, out.codes("q_t with scaled q", x.cols(), padded),
                   out.floats("absmax with scaled q", blocks * x.cols()), block_rows},
           .column_scales = scales.span()});
    });
  }

  std::optional<Context> context_;
};
TYPED_TEST_SUITE(DeviceEngines, FloatTypes);

// A thread block keeps a row in registers, one to eight packs of 16 bytes per thread, or reads a
// longer row twice.
TYPED_TEST(DeviceEngines, RowsOfEveryLength) {
  for (const std::int64_t threads : {32, 64, 96, 1024}) {
    this->block_threads(threads);
    for (const std::int64_t packs : {1, 3, 31, 32, 33, 64, 65, 127, 128, 129, 200, 256, 257, 600}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << packs << " packs");
      this->check_rowwise(normal_of_size<TypeParam>(5, packs * this->pack));
    }
  }
  this->block_threads(0);
  for (const std::int64_t packs : {600, 1025, 2049, 4096, 4097, 9000}) {
    SCOPED_TRACE(testing::Message() << packs << " packs");
    this->check_rowwise(normal_of_size<TypeParam>(this->multiprocessors() + 1, packs * this->pack));
  }
}

TYPED_TEST(DeviceEngines, FewLongRowsAreSplit) {
  for (const std::int64_t cols : {16385, 16400, 40000})
    for (const std::int64_t padding : {0, 1, 16}) {
      Matrix<TypeParam> x = normal_of_size<TypeParam>(padding == 1 ? 1 : 2, cols, {padding, 0});
      x.set(x.rows() - 1, cols - 1, TypeParam(std::numeric_limits<float>::infinity()));
      this->check_rowwise(x, {padding, 0});
      this->check_rowwise(x, {1, 1});
    }
}

// For column sums, a block of rows is read only once if there are enough blocks of rows. Each
// thread then has one, two or four packs of 16 bytes.
TYPED_TEST(DeviceEngines, ColumnSumsOfManyRows) {
  // From this number of rows on, and from 64 packs per row on, blocks of rows are read once.
  const std::int64_t enough = this->multiprocessors() * column_sum_block_rows;
  // More sums of blocks of rows than a thread block adds up in one turn.
  this->check_sums(normal_of_size<TypeParam>(300 * column_sum_block_rows, 3));
  if (under_thread_sanitizer) {  // the kernel has the same barriers for all other sizes
    this->block_threads(64);
    return this->check_sums(normal_of_size<TypeParam>(enough + 1, 65 * this->pack));
  }
  for (const std::int64_t rows : {enough, enough + 1, enough + 127, enough - 1})
    for (const std::int64_t threads : {32, 64, 128, 0})
      for (const std::int64_t packs : {64, 65, 128, 63}) {
        if (rows != enough + 1 && packs != 65) continue;
        SCOPED_TRACE(testing::Message() << threads << " threads, " << packs << " packs");
        this->block_threads(threads);
        this->check_sums(normal_of_size<TypeParam>(rows, packs * this->pack));
      }
  this->block_threads(0);
  Matrix<TypeParam> x = normal_of_size<TypeParam>(enough + 3, 66 * this->pack, {this->pack, 0});
  for (std::int64_t c = 0; c < x.cols(); ++c)
    x.set(7, c, TypeParam(-0.0f));
  for (std::int64_t r = 0; r < x.rows(); ++r)
    x.set(r, 9, TypeParam(-0.0f));
  x.set(130, 3, TypeParam(std::numeric_limits<float>::infinity()));
  x.set(260, 3, TypeParam(-std::numeric_limits<float>::infinity()));
  x.set(300, 65, TypeParam(std::numeric_limits<float>::quiet_NaN()));
  this->check_sums(x, {this->pack, 0});
  this->check_sums(x, {1, 1});
}

// A thread block computes tiles of 256 rows, tiles of one block of rows, or some rows of these:
// whole tiles as long as they fit.
TYPED_TEST(DeviceEngines, BlocksOfRows) {
  constexpr std::int64_t of_pack = TestFixture::pack;
  for (const std::int64_t block_rows : {128, 256, 512, 1024}) {
    for (const std::int64_t rows : {block_rows - 1, block_rows, block_rows + 1})
      this->check_blocks(normal_of_size<TypeParam>(rows, 10 * of_pack), block_rows);
    if (under_thread_sanitizer) continue;  // the same kernels, for minutes
    this->check_blocks(normal_of_size<TypeParam>(2 * block_rows + 130, of_pack), block_rows);
    for (const std::int64_t packs : {7, 8, 9, 33, 100})
      this->check_blocks(normal_of_size<TypeParam>(1, packs * of_pack), block_rows);
  }
  if (under_thread_sanitizer) return;
  for (const std::int64_t packs : {256, 257, 512, 514, 2048, 2049})
    this->check_blocks(normal_of_size<TypeParam>(5, packs * of_pack), 256);
  for (const std::int64_t rows : {127, 128, 129, 383, 385})
    this->check_blocks(normal_of_size<TypeParam>(rows, 18 * of_pack), 128);
  // Codes at addresses that are multiples of 16, 8, 4 and 1.
  for (const std::int64_t padding : {16, 8, 4, 1})
    this->check_blocks(normal_of_size<TypeParam>(300, 10 * of_pack, {2 * of_pack, 0}), 256,
                       {padding, 0});
  this->check_blocks(normal_of_size<TypeParam>(300, 10 * of_pack, {0, 16}), 256, {16, 1});
  this->check_blocks(normal_of_size<TypeParam>(300, 9 * of_pack + 1), 256);
  this->check_blocks(normal_of_size<TypeParam>(300, 9 * of_pack, {1, 0}), 512);
}

TYPED_TEST(DeviceEngines, UnusualBlocksOfRows) {
  // The smallest positive number of each type.
  constexpr float smallest = std::is_same_v<TypeParam, half>       ? 0x1p-24f
                             : std::is_same_v<TypeParam, bfloat16> ? 0x1p-133f
                                                                   : 0x1p-149f;
  for (const std::int64_t block_rows : {128, 256, 512}) {
    Matrix<TypeParam> x = normal_of_size<TypeParam>(2 * block_rows, 10 * this->pack);
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      if (r < block_rows) x.set(r, 1, TypeParam(0.0f));
      if (r >= block_rows) x.set(r, 2, TypeParam(-0.0f));
      x.set(r, 3, TypeParam(smallest));
    }
    x.set(block_rows - 1, 4, TypeParam(inf));
    x.set(block_rows, 5, TypeParam(-inf));
    x.set(2 * block_rows - 1, x.cols() - 1, TypeParam(std::numeric_limits<float>::quiet_NaN()));
    this->check_blocks(x, block_rows);
  }
}

TYPED_TEST(DeviceEngines, EveryBlockSize) {
  const Matrix<TypeParam> packed = normal_of_size<TypeParam>(140, 272);
  const Matrix<TypeParam> odd = normal_of_size<TypeParam>(131, 77, {1, 1});
  const Matrix<TypeParam> narrow = normal_of_size<TypeParam>(261, 16, {16, 0});
  for (const Matrix<TypeParam>* x : {&packed, &odd, &narrow}) {
    const auto every_op = [&](Context& context, Outputs& out) { run_every_op(context, *x, out); };
    const Outputs want = results_of(reference(), {}, every_op);
    for (const std::int64_t threads : {32, 96, 224, 256, 544, 1024}) {
      if (under_thread_sanitizer && threads > 96 && threads < 1024) continue;
      SCOPED_TRACE(testing::Message() << threads << " threads");
      this->block_threads(threads);
      expect_same(results_of(*this->context_, {}, every_op), want);
    }
  }
}

// For some absmax of 16-bit groups, a multiplication by an inverse does not give the codes: their
// significand is a multiple of 127, or they are tiny. Each such absmax is that of a row and of a
// column here; the last is also that of the matrix.
TYPED_TEST(DeviceEngines, AbsmaxThatNeedsTheDivision) {
  constexpr bool is_bf16 = std::is_same_v<TypeParam, bfloat16>;
  constexpr int one = is_bf16 ? 128 : 1024;
  std::vector<int> significands;
  if (is_bf16) {
    for (int s = 128; s < 255; ++s)
      significands.push_back(s);
  } else {
    for (int multiple = 127 * 9; multiple < 2048; multiple += 127)
      for (const int s : {multiple - 1, multiple + 1, multiple})
        significands.push_back(s);
  }
  std::vector<float> scales = {1.0f, is_bf16 ? 0x1p-125f : 0x1p-14f};
  if (is_bf16) scales.push_back(0x1p120f);
  const auto n = static_cast<std::int64_t>(significands.size());
  for (const float scale : scales)
    for (const std::int64_t size : {(n + 7) / 8 * 8, n}) {
      SCOPED_TRACE(testing::Message() << scale << ", " << n << " of " << size);
      Matrix<TypeParam> x = normal_of_size<TypeParam>(size, size, {}, 0.2f);
      for (std::int64_t r = 0; r < size; ++r)
        for (std::int64_t c = 0; c < size; ++c)
          x.set(r, c, TypeParam(std::clamp(x.get_float(r, c), -0.9f, 0.9f) * scale));
      for (std::int64_t r = 0; r < n; ++r) {
        const float absmax = static_cast<float>(significands[static_cast<std::size_t>(r)]) /
                             static_cast<float>(one) * scale;
        // Half of absmax is a tie, 63.5.
        x.set(r, (r + 1) % n, TypeParam(r % 2 == 0 ? absmax / 2 : -absmax / 2));
        x.set((r + 2) % n, r, TypeParam(absmax / 2));
        x.set(r, r, TypeParam(absmax));
      }
      this->check({}, [&](Context& context, Outputs& out) { run_every_op(context, x, out); });
    }
}

TEST(DeviceEnginesF32, CanBeCaptured) {
  if (on_cpu()) GTEST_SKIP() << "tests devices other than the CPU";
  Matrix<float> x = normal_of_size<float>(140, 272);
  Context context(device_options());
  core::DeviceRuntime& runtime = *context.state().runtime;
  const auto every_op = [&](Context& on, Outputs& out) { run_every_op(on, x, out); };
  Outputs got = results_of(context, {}, every_op);
  Outputs want = results_of(reference(), {}, every_op);
  got.reuse();
  want.reuse();
  runtime.begin_capture();
  every_op(context, got);
  const auto graph = runtime.end_capture();
  x.set(1, 5, 100.0f);
  graph->launch();
  runtime.synchronize();
  every_op(reference(), want);
  expect_same(got, want);
}

}  // namespace
}  // namespace switchback::test
