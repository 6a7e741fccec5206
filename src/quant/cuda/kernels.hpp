// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launchers of the CUDA quantize kernels. They queue and return. Matrices are not
// empty; scratch is aligned, everything else may be at any address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/api.hpp"
#include "quant/proof.hpp"
#include "switchback/matrix.hpp"

namespace switchback {
enum class Rotation : std::int32_t;
struct StochasticRounding;
}  // namespace switchback

namespace switchback::quant::cuda {

/// Several matrices, for launchers that accept more than one: their number, and the distance from
/// one to the next, in elements and in codes. The bits and scales of all matrices are consecutive.
struct MatrixSteps {
  std::int64_t count = 1;
  std::int64_t x = 0;
  std::int64_t q = 0;
  std::int64_t q_t = 0;
};

struct Launch {
  cudaStream_t stream;
  int block_threads;  ///< threads of a block: a multiple of 32 up to 1024; 0: the kernel chooses
  int multiprocessors;
  bool overlaps;             ///< kernels may overlap with the previous kernels of the stream
  bool cooperates;           ///< launches whose blocks wait for each other are possible
  std::size_t shared_bytes;  ///< the most shared memory that a block may have
  std::size_t l2_bytes = 0;  ///< size of the last cache before memory
  MatrixSteps matrices{};
  /// Not null: kernels that compute codes of a weight write nothing if this word in device memory
  /// is 0.
  const unsigned* changed = nullptr;
};

using Codes = MatrixView<std::int8_t>;

inline constexpr std::int64_t sum_block_rows = 128;  ///< equal to column_sum_block_rows

/// Whether launch_rowwise splits rows: they are too few, and too long for one block each.
bool rowwise_splits(const Launch& launch, std::int64_t rows, std::int64_t cols) noexcept;
/// Computes codes and absmax of rows. `row_bits`: scratch memory of one word per row if rows are
/// split, else null. Unless rows are split, this processes all matrices.
cudaError_t launch_rowwise(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax,
                           unsigned* row_bits);

/// Whether launch_rowwise_column_sums supports the matrix.
bool rowwise_sums_together(const Launch& launch, ConstAnyMatrix x, Codes q) noexcept;
/// Computes codes and absmax of rows, and `block_sums`: the column sums of each block of
/// sum_block_rows rows, [blocks,cols].
cudaError_t launch_rowwise_column_sums(const Launch& launch, ConstAnyMatrix x, Codes q,
                                       float* absmax, float* block_sums);
cudaError_t launch_block_sums(const Launch& launch, ConstAnyMatrix x, float* block_sums);
/// Adds up the sums of blocks of rows in order, and stores the total in `sums`, or adds it to
/// `sums` if `accumulate`. The total is zero if there are no blocks.
cudaError_t launch_finish_sums(const Launch& launch, const float* block_sums, std::int64_t blocks,
                               std::int64_t cols, float* sums, bool accumulate);

/// Stores the bits of the largest magnitude of the matrix, or of each row, in `bits`. Unless
/// by_row, launch_absmax and launch_codes process all matrices.
cudaError_t launch_absmax(const Launch& launch, ConstAnyMatrix x, unsigned* bits, bool by_row);
/// Computes codes with the absmax whose bits are in `bits`, and stores this absmax as floats.
cudaError_t launch_codes(const Launch& launch, ConstAnyMatrix x, Codes q, const unsigned* bits,
                         bool by_row, float* absmax);
cudaError_t launch_cast(const Launch& launch, ConstAnyMatrix x, Codes q);
cudaError_t launch_dequantize(const Launch& launch, ConstAnyMatrix codes, const float* scales,
                              AnyMatrix y);

/// The size of a list (gelu_list.cuh) of activations of f16, or of their derivatives.
constexpr std::size_t activation_list_bytes(bool backward) {
  return backward ? std::size_t{2 * 0x4900 * 4} : std::size_t{2 * 0x4600 * 2};
}
/// Whether a list pays off if launch_activation or launch_activation_rowwise is given these
/// matrices; g and y may have no data.
bool activation_wants_list(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                           AnyMatrix y) noexcept;

/// Computes y = activation(x), or g · activation'(x) if g has data; g and y then have the same
/// type. `list`: null, or scratch memory for a list.
cudaError_t launch_activation(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                              Activation activation, AnyMatrix y, void* list);
/// Whether launch_activation_rowwise supports the matrices; g and y may have no data.
bool activation_rowwise_together(ConstAnyMatrix g, ConstAnyMatrix x, AnyMatrix y, Codes q) noexcept;
/// Computes activation(x), or g · activation'(x) if g has data; then the codes and absmax of its
/// rows. It is stored in y unless y has no data. All matrices have the same type.
cudaError_t launch_activation_rowwise(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                                      Activation activation, AnyMatrix y, Codes q, float* absmax,
                                      void* list);

/// Computes y = rotate(x); x and y have the same type, or one of them is f32. y may be x itself.
cudaError_t launch_rotate(const Launch& launch, ConstAnyMatrix x, Rotation rotation, AnyMatrix y);
/// Whether launch_rotate_rowwise supports the matrix.
bool rotate_rowwise_together(ConstAnyMatrix x) noexcept;
/// Computes codes and absmax of the rows of rotate(x), which is in f32.
cudaError_t launch_rotate_rowwise(const Launch& launch, ConstAnyMatrix x, Rotation rotation,
                                  Codes q, float* absmax);

/// Whether launch_rotate_rowwise_by_lanes supports the matrix, and is faster.
bool rotate_rowwise_by_lanes(const Launch& launch, ConstAnyMatrix x, Codes q) noexcept;
/// Computes the same results as launch_rotate_rowwise.
cudaError_t launch_rotate_rowwise_by_lanes(const Launch& launch, ConstAnyMatrix x,
                                           Rotation rotation, Codes q, float* absmax);

/// Computes codes and absmax of rows, rounded stochastically. The columns of x are multiplied by
/// column_scales first, unless these are null.
cudaError_t launch_rowwise_stochastic(const Launch& launch, ConstAnyMatrix x,
                                      const float* column_scales,
                                      const StochasticRounding& rounding, Codes q, float* absmax);
/// Computes codes and absmax of the rows of x with its columns multiplied by column_scales, rounded
/// to nearest.
cudaError_t launch_rowwise_scaled(const Launch& launch, ConstAnyMatrix x,
                                  const float* column_scales, Codes q, float* absmax);

/// Stores the bits of the largest magnitudes of columns and, unless row_bits is null, of rows,
/// which follow those of the columns. With block_rows, a power of two times 128, there are
/// [blocks,cols] of the columns, else [cols]. The launchers of transposed codes below process all
/// matrices too: first come the columns of all matrices, then the rows of all.
cudaError_t launch_absmax_columns(const Launch& launch, ConstAnyMatrix x, std::int64_t block_rows,
                                  unsigned* column_bits, unsigned* row_bits);
/// Computes q_t with one absmax, whose bits are given, and q unless it has no data.
cudaError_t launch_global_transpose(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                                    const unsigned* bits, float* absmax);
/// Computes q_t with the columns' absmax and, unless row_bits is null, q with the rows'. With
/// block_rows, q_t has whole blocks of rows, with zeros after the last row of x.
cudaError_t launch_columnwise_transpose(const Launch& launch, ConstAnyMatrix x, Codes q,
                                        float* absmax, const unsigned* row_bits, Codes q_t,
                                        float* absmax_cols, std::int64_t block_rows,
                                        const unsigned* column_bits);
/// Whether the cooperative launchers of transposed codes support the matrix, and are faster than
/// two launches.
bool transposes_cooperatively(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t) noexcept;
/// Computes the same results as launch_absmax and launch_global_transpose, in one launch. `bits`:
/// scratch memory of one word. cudaErrorCooperativeLaunchTooLarge: the device, or this process's
/// part of it, has no room for all blocks; nothing was queued.
cudaError_t launch_global_transpose_cooperative(const Launch& launch, ConstAnyMatrix x, Codes q,
                                                Codes q_t, unsigned* bits, float* absmax);
/// Computes the same results as launch_absmax_columns and launch_columnwise_transpose, in one
/// launch. `row_bits`: null, or after column_bits. Errors are those of
/// launch_global_transpose_cooperative.
cudaError_t launch_columnwise_transpose_cooperative(const Launch& launch, ConstAnyMatrix x, Codes q,
                                                    float* absmax, unsigned* row_bits, Codes q_t,
                                                    float* absmax_cols, unsigned* column_bits);

/// Queues the kernel of ask_whether_changed() (quant/proof.hpp).
cudaError_t launch_fingerprint(const Launch& launch, ConstAnyMatrix x,
                               const std::uint64_t (&seed)[2], WeightProof* proof, unsigned codes);

/// Whether launch_blocks supports the matrix, and whether it can also compute the codes of rows.
bool blocks_together(const Launch& launch, ConstAnyMatrix x, std::int64_t block_rows) noexcept;
bool blocks_and_rows_together(ConstAnyMatrix x, const float* column_scales, Codes q,
                              std::int64_t block_rows) noexcept;
/// Computes q_t in whole blocks of rows with the absmax of their columns, with zeros after the last
/// row of x; and q with the rows' absmax unless it has no data. Unless column_scales is null, q has
/// the codes of x with its columns multiplied by column_scales.
cudaError_t launch_blocks(const Launch& launch, ConstAnyMatrix x, const float* column_scales,
                          Codes q, float* absmax, Codes q_t, float* absmax_cols,
                          std::int64_t block_rows);
/// Whether launch_blocks_stochastic supports the matrix.
bool blocks_stochastic_together(ConstAnyMatrix x, std::int64_t block_rows) noexcept;
/// Computes q_t in whole blocks of rows with the absmax of their columns, rounded stochastically.
cudaError_t launch_blocks_stochastic(const Launch& launch, ConstAnyMatrix x,
                                     const StochasticRounding& rounding, Codes q_t, float* absmax,
                                     std::int64_t block_rows);
/// Computes what launch_blocks_stochastic computes, for any matrix, from the bits that
/// launch_absmax_columns has stored.
cudaError_t launch_blocks_stochastic_twice(const Launch& launch, ConstAnyMatrix x,
                                           const StochasticRounding& rounding, Codes q_t,
                                           float* absmax, std::int64_t block_rows,
                                           const unsigned* column_bits);

}  // namespace switchback::quant::cuda
