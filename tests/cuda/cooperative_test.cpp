// SPDX-License-Identifier: Apache-2.0
// Absmax and transposed codes of a matrix in one cooperative launch, whose blocks keep the tiles
// that they have read. Tests where tiles are kept (shared memory, registers, or neither), and when
// there are two launches instead. The suites of the operations compare many more matrices.
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "cuda/cuda_support.hpp"
#include "quant/every_op.hpp"
#include "support/contexts.hpp"

namespace switchback::test {
namespace {

using switchback_cuda_emu::options;

class CudaCooperative : public Cuda {
 protected:
  using Names = std::vector<std::string>;

  // The names of the kernels that `call` launches.
  template <class Call>
  static Names launched(Call&& call) {
    const auto launches = launches_of(call);
    for (const auto& launch : launches)
      EXPECT_EQ(launch.cooperative, launch.name == "quantize_at_once");
    return names_of(launches);
  }

  template <class T>
  struct Codes {
    Matrix<std::int8_t> q, q_t;
    Matrix<float> rows, cols, one;
    Matrix<std::int8_t> one_q, one_t, alone_t;
  };
  // Quantizes with both operations that a layer's weight needs. `columnwise` and `global` receive
  // the kernels launched for each.
  template <class T>
  static Codes<T> codes_of(const Matrix<T>& host, Names* columnwise = nullptr,
                           Names* global = nullptr) {
    Context context(emulated());
    const std::int64_t rows = host.rows(), cols = host.cols();
    const DeviceMatrix<T> x(context, host);
    const DeviceMatrix<std::int8_t> q(context, rows, cols), q_t(context, cols, rows);
    const DeviceMatrix<std::int8_t> one_q(context, rows, cols), one_t(context, cols, rows);
    const DeviceMatrix<std::int8_t> alone_t(context, cols, rows);
    const DeviceMatrix<float> of_rows(context, 1, rows), of_cols(context, 1, cols);
    const DeviceMatrix<float> one(context, 1, 1);
    const Names of_columns = launched([&] {
      quantize_rowwise_and_columnwise_transpose(context, x.view(), q.view(), of_rows.span(),
                                                q_t.view(), of_cols.span());
    });
    if (columnwise != nullptr) *columnwise = of_columns;
    const Names of_one = launched([&] {
      quantize_global_and_transpose(context, x.view(), one_q.view(), one_t.view(), one.span());
    });
    if (global != nullptr) *global = of_one;
    quantize_columnwise_transpose(context, x.view(), alone_t.view(), of_cols.span());
    return {q.download(),   q_t.download(),   of_rows.download(), of_cols.download(),
            one.download(), one_q.download(), one_t.download(),   alone_t.download()};
  }
  template <class T>
  static void expect_same_codes(const Codes<T>& got, const Codes<T>& want) {
    EXPECT_TRUE(same_codes(got.q, want.q));
    EXPECT_TRUE(same_codes(got.q_t, want.q_t));
    EXPECT_TRUE(same_bits(got.rows, want.rows));
    EXPECT_TRUE(same_bits(got.cols, want.cols));
    EXPECT_TRUE(same_bits(got.one, want.one));
    EXPECT_TRUE(same_codes(got.one_q, want.one_q));
    EXPECT_TRUE(same_codes(got.one_t, want.one_t));
    EXPECT_TRUE(same_codes(got.alone_t, want.q_t));
  }

  static const inline Names once = {"quantize_at_once"};
  static const inline Names twice_columnwise = {"absmax_columns", "quantize_transpose"};
  static const inline Names twice_global = {"absmax", "quantize_transpose"};
};

// The test shapes follow from these sizes. A tile has 128 rows by 8 packs; one of the last tiles
// has one row and one pack. There are four blocks of up to three groups of 128 threads. A group
// keeps four tiles in shared memory and one in registers, and may read one tile twice. So 12 tiles
// are one per group, 60 are all kept, and 72 are the most; more need two launches.
TEST_F(CudaCooperative, WhereverTilesAreKept) {
  const auto compare = [](auto element, std::int64_t pack) {
    using T = decltype(element);
    struct Shape {
      std::int64_t down, across;
      bool once;
    };
    for (const auto& [down, across, fits] :
         {Shape{1, 1, true}, Shape{5, 1, true}, Shape{1, 13, true}, Shape{12, 5, true},
          Shape{61, 1, true}, Shape{9, 8, true}, Shape{1, 73, false}}) {
      SCOPED_TRACE(testing::Message() << down << " by " << across << " tiles of packs of " << pack);
      if (under_thread_sanitizer && down * across > 13) continue;
      Matrix<T> x = normal_matrix<T>((down - 1) * 128 + 1, ((across - 1) * 8 + 1) * pack, 7);
      x.set(x.rows() - 1, x.cols() - 1, T(50.0f));
      x.set(0, x.cols() - 1, T(-60.0f));
      Names columnwise, global;
      const auto got = codes_of(x, &columnwise, &global);
      EXPECT_EQ(columnwise, fits ? once : twice_columnwise);
      EXPECT_EQ(global, fits ? once : twice_global);
      const auto machine = options();
      options().cooperative_launches = false;
      const auto want = codes_of(x, &columnwise, &global);
      options() = machine;
      EXPECT_EQ(columnwise, twice_columnwise);
      EXPECT_EQ(global, twice_global);
      expect_same_codes(got, want);
    }
  };
  compare(float{}, 4);
  compare(bfloat16{}, 8);
  if (!under_thread_sanitizer) compare(half{}, 8);
}

TEST_F(CudaCooperative, NoMemsetAndAnyOrderOfBlocks) {
  const Matrix<float> x = normal_matrix<float>(300, 100, 3);
  const auto want = codes_of(x);
  for (const std::uint64_t seed : {0, 2, 3, 77}) {
    switchback_cuda_emu::reset({.schedule_seed = seed});
    expect_no_calls_of({"cudaMemsetAsync"}, [&] { expect_same_codes(codes_of(x), want); });
  }
}

// The shared memory of a block limits the tiles that each group of threads keeps: two with an
// A100's 163 KiB, one with the 99 KiB of an RTX 4090.
TEST_F(CudaCooperative, OtherGenerations) {
  const Matrix<float> x = normal_matrix<float>(128 * 8, 32 * 4, 3);
  const auto want = codes_of(x);
  struct Machine {
    int compute_capability;
    bool once;
  };
  for (const auto& [compute_capability, fits] :
       {Machine{75, false}, Machine{80, true}, Machine{89, true}, Machine{100, true},
        Machine{120, true}}) {
    SCOPED_TRACE(compute_capability);
    switchback_cuda_emu::reset({.compute_capability = compute_capability});
    Names columnwise, global;
    expect_same_codes(codes_of(x, &columnwise, &global), want);
    EXPECT_EQ(columnwise, fits ? once : twice_columnwise);
    EXPECT_EQ(global, fits ? once : twice_global);
  }
}

// Quantizing blocks of rows takes one launch if x consists of whole packs and a thread block has
// the shared memory. 64 KiB are too little for blocks of 1024 rows; in f32, so are the registers.
// Codes of rows have their own launch if a row does not fit a thread block.
TEST_F(CudaCooperative, BlocksOfRows) {
  const auto launches_of = [](auto element, int compute_capability, std::int64_t cols,
                              std::int64_t block_rows, bool rows_too) {
    using T = decltype(element);
    switchback_cuda_emu::reset({.compute_capability = compute_capability});
    Context context(emulated());
    const DeviceMatrix<T> x(context, normal_matrix<T>(3, cols, 7));
    const DeviceMatrix<std::int8_t> q(context, 3, cols), q_t(context, cols, block_rows);
    const DeviceMatrix<float> of_rows(context, 1, 3), of_blocks(context, 1, cols);
    return launched([&] {
      if (rows_too)
        quantize_rowwise_and_blockwise_transpose(context, x.view(), q.view(), of_rows.span(),
                                                 block_rows, q_t.view(), of_blocks.span());
      else
        quantize_blockwise_transpose(context, x.view(), block_rows, q_t.view(), of_blocks.span());
    });
  };
  const Names one = {"quantize_blocks"};
  const Names rows_first = {"quantize_rowwise", "quantize_blocks"};
  for (const std::int64_t block_rows : {128, 256, 512, 1024})
    for (const bool rows_too : {false, true}) {
      SCOPED_TRACE(testing::Message() << block_rows << (rows_too ? " with rows" : ""));
      EXPECT_EQ(launches_of(bfloat16{}, 90, 72, block_rows, rows_too), one);
      EXPECT_EQ(launches_of(half{}, 90, 71, block_rows, rows_too), twice_columnwise);
      const bool large = block_rows == 1024;
      EXPECT_EQ(launches_of(float{}, 90, 72, block_rows, rows_too), large ? twice_columnwise : one);
      EXPECT_EQ(launches_of(half{}, 75, 72, block_rows, rows_too), large ? twice_columnwise : one);
    }
  EXPECT_EQ(launches_of(bfloat16{}, 90, 256 * 8 * 8, 256, true), one);
  EXPECT_EQ(launches_of(bfloat16{}, 90, 256 * 8 * 8 + 8, 256, true), rows_first);
}

// If the process has only a part of the device, a cooperative launch fails because its blocks do
// not fit. Two launches replace it.
TEST_F(CudaCooperative, WhereBlocksHaveNoRoomThereAreTwoLaunches) {
  const Matrix<float> x = normal_matrix<float>(140, 64, 3);
  const auto want = codes_of(x);
  Context context(emulated());
  const DeviceMatrix<float> from(context, x);
  const DeviceMatrix<std::int8_t> q(context, 140, 64), q_t(context, 64, 140);
  const DeviceMatrix<float> rows(context, 1, 140), cols(context, 1, 64);
  const auto quantize = [&] {
    quantize_rowwise_and_columnwise_transpose(context, from.view(), q.view(), rows.span(),
                                              q_t.view(), cols.span());
  };
  quantize();
  options().fail_call_name = "launch";
  options().fail_call_after = 0;
  options().fail_call_error = cudaErrorCooperativeLaunchTooLarge;
  EXPECT_EQ(launched(quantize), twice_columnwise);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(same_codes(q.download(), want.q));
  EXPECT_TRUE(same_codes(q_t.download(), want.q_t));
}

}  // namespace
}  // namespace switchback::test
