// SPDX-License-Identifier: Apache-2.0
// Entry zone: matrix products: int8 to int32, int8 with the dequantize fused into the epilogue, and
// floating point.
//
// The int8 products take B as [N,K], rows contiguous along the inner dimension, as nn.Linear stores
// its weight. Every engine, configuration and thread count gives identical int32 sums. They are
// exact up to K = max_exact_k_of_any_codes (131071) for any codes, and up to K = max_exact_k
// (133144) for codes from -127 to 127, which is what every quantize operation produces. A larger K
// is refused. For a K between the two limits the CPU also refuses codes of -128; a CUDA device does
// not check, and its sums could overflow.
//
// Inputs and outputs must not overlap. M, N or K may be zero; K = 0 gives zeros (plus bias).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/engine_info.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

/// The largest inner dimension for which int32 sums of int8 products are exact for any codes,
/// including -128, which cast_to_int8 can produce: 128·128·K < 2^31. (max_exact_k is the limit for
/// codes from -127 to 127.)
inline constexpr std::int64_t max_exact_k_of_any_codes = 131071;

struct PackedWeightState;  // defined in src/gemm/int8/packed_weight.hpp

/// An int8 matrix B[N,K] rearranged once for the engine that will read it many times. It owns its
/// memory and does not refer to the original matrix. Packing into the same object again reuses the
/// memory. Valid for Contexts of the same device and instruction set.
class SWITCHBACK_API PackedWeight {
 public:
  PackedWeight();
  ~PackedWeight();
  PackedWeight(PackedWeight&&) noexcept;
  PackedWeight& operator=(PackedWeight&&) noexcept;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  [[nodiscard]] bool empty() const noexcept;         ///< whether nothing was packed yet
  [[nodiscard]] std::int64_t rows() const noexcept;  ///< N of the matrix [N,K]
  [[nodiscard]] std::int64_t cols() const noexcept;  ///< K of the matrix [N,K]
  /// The number of matrices [N,K] that it holds: more than 1 if pack_weights packed them
  /// (switchback/grouped.hpp).
  [[nodiscard]] std::int64_t groups() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;  ///< bytes of memory that it holds
  /// The name of the engine that the matrix was packed for.
  [[nodiscard]] std::string_view engine() const noexcept;

  /// The internal state, for the library itself. Not part of the API.
  [[nodiscard]] PackedWeightState& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<PackedWeightState> state_;
};

/// Packs b[N,K] into `out` for the engine named `engine`, or, if that is empty, for the engine that
/// this Context would choose.
SWITCHBACK_API void pack_weight(Context& context, MatrixView<const std::int8_t> b,
                                PackedWeight& out, std::string_view engine = {});

/// Arguments of gemm_s8s8s32, which computes the int32 sums d[M,N] = a[M,K] · b[N,K]ᵀ.
struct GemmS8S8S32Args {
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [N,K]; null data if packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< b in packed form, used instead of b; null: none
  MatrixView<std::int32_t> d = {};         ///< [M,N]
  std::string_view engine = {};            ///< forces an engine by name; empty: the library chooses
};
/// Multiplies two int8 matrices and returns the exact int32 sums; see GemmS8S8S32Args.
SWITCHBACK_API void gemm_s8s8s32(Context& context, const GemmS8S8S32Args& args);

/// Arguments of gemm, which computes d[M,N] = absmax_b · (absmax_a · (a[M,K] · b[N,K]ᵀ · c)) + bias
/// with c = 1/(127·127) (0x38820610), in f32 in that order, rounded once to the type of d.
struct GemmArgs {
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [N,K]; null data if packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< b in packed form, used instead of b; null: none
  AnyMatrix d = {};                        ///< [M,N] f32, f16 or bf16
  std::span<const float> absmax_a = {};    ///< [M]: the scale of each row of a
  std::span<const float> absmax_b = {};    ///< [N]: the scale of each row of b, or [1]: of all of b
  ConstAnyMatrix bias = {};                ///< [1,N] f32, f16 or bf16; null data: no bias
  std::string_view engine = {};            ///< forces an engine by name; empty: the library chooses
};
/// Multiplies two int8 matrices, and applies scales and bias to the sums; see GemmArgs.
SWITCHBACK_API void gemm(Context& context, const GemmArgs& args);

/// Arguments of gemm_blockwise, which computes d[N,K] (+)= Gᵀ · X from the codes and scales that
/// quantize_blockwise_transpose makes: a[N,Mp] and absmax_a[B,N] of G[M,N], b[K,Mp] and
/// absmax_b[B,K] of X[M,K]. For each element, in f32, with S_b the int32 sum over block b:
///   p = +0; for each block of a superblock in order: p = fma(float(S_b) · absmax_b[b,k],
///   absmax_a[b,n], p); then D = fma(p, c, D), c = 1/(127·127) (0x38820610), superblock by
///   superblock
/// D starts at +0, or with `accumulate` at d, and is rounded once to the type of d at the end. A
/// superblock has blockwise_superblock_rows rows. So of all settings only block_rows affects the
/// result. With d in f32, batches of whole superblocks that accumulate give the bits of one large
/// batch.
struct BlockwiseGemmArgs {
  MatrixView<const std::int8_t> a = {};  ///< [N,Mp], Mp: M rounded up to whole blocks
  MatrixView<const std::int8_t> b = {};  ///< [K,Mp]
  AnyMatrix d = {};                      ///< [N,K] f32, f16 or bf16
  std::span<const float> absmax_a = {};  ///< [B,N]
  std::span<const float> absmax_b = {};  ///< [B,K]
  std::int64_t block_rows = 256;         ///< the rows of a block: 128, 256, 512 or 1024
  bool accumulate = false;               ///< add the product to the values in d
  std::string_view engine = {};          ///< forces an engine by name; empty: the library chooses
  /// M, if it is known: rows of the last block from M on are padding with codes of 0, which engines
  /// need not multiply. -1: all blocks are whole.
  std::int64_t m = -1;
};
/// Multiplies codes that have a scale for each column of a block of rows; see BlockwiseGemmArgs.
SWITCHBACK_API void gemm_blockwise(Context& context, const BlockwiseGemmArgs& args);
/// The rows of a superblock: gemm_blockwise first adds up the blocks of these rows in f32, and then
/// adds the sum to d.
inline constexpr std::int64_t blockwise_superblock_rows = 8192;

/// Arguments of gemm_standard, which computes d[M,N] (+)= op(a) · op(b) (+ bias) with sums in f32.
/// op transposes if transpose_a or transpose_b says so. a and b have the same type, f32, f16 or
/// bf16; d has that type or f32. The three products of a linear layer:
///   Y = X[M,K] · W[N,K]ᵀ: transpose_b;  dX = G[M,N] · W[N,K]: neither;  dW = Gᵀ · X: transpose_a.
struct StandardGemmArgs {
  ConstAnyMatrix a = {};         ///< [M,K], or [K,M] with transpose_a
  ConstAnyMatrix b = {};         ///< [K,N], or [N,K] with transpose_b
  AnyMatrix d = {};              ///< [M,N]
  bool transpose_a = false;      ///< op(a) = aᵀ
  bool transpose_b = false;      ///< op(b) = bᵀ
  bool accumulate = false;       ///< add the product to the values in d
  ConstAnyMatrix bias = {};      ///< [1,N] f32, f16 or bf16; null data: no bias
  std::string_view engine = {};  ///< forces an engine by name; empty: the library chooses
};
/// Multiplies two floating point matrices; see StandardGemmArgs.
SWITCHBACK_API void gemm_standard(Context& context, const StandardGemmArgs& args);

/// The engines of gemm and gemm_s8s8s32 in order of preference, each with the reason if it cannot
/// run on this Context.
SWITCHBACK_API std::vector<EngineInfo> gemm_engines(const Context& context);
/// The engines of gemm_standard in order of preference, each with the reason if it cannot run on
/// this Context.
SWITCHBACK_API std::vector<EngineInfo> gemm_standard_engines(const Context& context);
/// The engines of gemm_blockwise in order of preference, each with the reason if it cannot run on
/// this Context.
SWITCHBACK_API std::vector<EngineInfo> gemm_blockwise_engines(const Context& context);

}  // namespace switchback
