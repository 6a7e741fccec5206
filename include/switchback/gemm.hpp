// SPDX-License-Identifier: Apache-2.0
// Entry zone: matrix products: int8 to int32, int8 with the dequantize fused into the epilogue, and
// floating point.
//
// The int8 products take B as [N,K], rows contiguous along the inner dimension, as nn.Linear stores
// its weight. Every engine, configuration and thread count gives identical int32 sums. They are
// exact up to K = max_exact_k_of_any_codes (131071) for any codes, and up to K = max_exact_k
// (133144) for codes from -127 to 127, which is what every quantize operation produces. A larger K
// is refused. For a K between the two limits the CPU also refuses codes of -128; a device does not
// check, and its sums could overflow.
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

struct PackedWeightState;  // src/gemm/int8/packed_weight.hpp

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

  [[nodiscard]] bool empty() const noexcept;         ///< nothing packed yet
  [[nodiscard]] std::int64_t rows() const noexcept;  ///< N
  [[nodiscard]] std::int64_t cols() const noexcept;  ///< K
  /// Matrices [N,K] held: more than 1 from pack_weights (switchback/grouped.hpp).
  [[nodiscard]] std::int64_t groups() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;        ///< memory held
  [[nodiscard]] std::string_view engine() const noexcept;  ///< the engine it was packed for

  /// The library's own view. Not part of the API.
  [[nodiscard]] PackedWeightState& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<PackedWeightState> state_;
};

/// Packs b[N,K] into out for the named engine, or for the one that this Context would choose.
SWITCHBACK_API void pack_weight(Context& context, MatrixView<const std::int8_t> b,
                                PackedWeight& out, std::string_view engine = {});

/// d[M,N] = a[M,K] · b[N,K]ᵀ in int32.
struct GemmS8S8S32Args {
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [N,K]; data null when packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< takes the place of b
  MatrixView<std::int32_t> d = {};         ///< [M,N]
  std::string_view engine = {};            ///< forces an engine by name; empty = chosen
};
/// The int8 product to int32 sums; see GemmS8S8S32Args.
SWITCHBACK_API void gemm_s8s8s32(Context& context, const GemmS8S8S32Args& args);

/// d[M,N] = absmax_b · (absmax_a · (a[M,K] · b[N,K]ᵀ · c)) + bias, c = 1/(127·127) (0x38820610), in
/// f32 in that order, rounded once to the type of d.
struct GemmArgs {
  MatrixView<const std::int8_t> a = {};    ///< [M,K]
  MatrixView<const std::int8_t> b = {};    ///< [N,K]; data null when packed_b is given
  const PackedWeight* packed_b = nullptr;  ///< takes the place of b
  AnyMatrix d = {};                        ///< [M,N] f32, f16 or bf16
  std::span<const float> absmax_a = {};    ///< [M]
  std::span<const float> absmax_b = {};    ///< [N], or [1] for one scale of the whole of b
  ConstAnyMatrix bias = {};                ///< [1,N] f32, f16 or bf16; data null = none
  std::string_view engine = {};            ///< forces an engine by name; empty = chosen
};
/// The int8 product with scales and bias; see GemmArgs.
SWITCHBACK_API void gemm(Context& context, const GemmArgs& args);

/// d[N,K] (+)= Gᵀ · X from the codes of quantize_blockwise_transpose: a[N,Mp] and absmax_a[B,N] of
/// G[M,N], b[K,Mp] and absmax_b[B,K] of X[M,K]. For each element, in f32, with S_b the int32 sum
/// over block b:
///   p = +0; for each block of a superblock in order: p = fma(float(S_b) · absmax_b[b,k],
///   absmax_a[b,n], p); then D = fma(p, c, D), c = 1/(127·127) (0x38820610), superblock by
///   superblock
/// D starts at +0, or with `accumulate` at d, and is rounded once to the type of d at the end. A
/// superblock has blockwise_superblock_rows rows. So the result depends on block_rows alone, and
/// with d in f32, batches of whole superblocks that accumulate give the bits of one large batch.
struct BlockwiseGemmArgs {
  MatrixView<const std::int8_t> a = {};  ///< [N,Mp], Mp: M rounded up to whole blocks
  MatrixView<const std::int8_t> b = {};  ///< [K,Mp]
  AnyMatrix d = {};                      ///< [N,K] f32, f16 or bf16
  std::span<const float> absmax_a = {};  ///< [B,N]
  std::span<const float> absmax_b = {};  ///< [B,K]
  std::int64_t block_rows = 256;         ///< 128, 256, 512 or 1024
  bool accumulate = false;               ///< add to the values in d
  std::string_view engine = {};          ///< forces an engine by name; empty = chosen
  /// M, if known: rows of the last block from M on are padding, whose codes are 0, and engines need
  /// not multiply them. -1: whole blocks.
  std::int64_t m = -1;
};
/// The int8 product of codes with a scale for each column of a block; see BlockwiseGemmArgs.
SWITCHBACK_API void gemm_blockwise(Context& context, const BlockwiseGemmArgs& args);
/// The rows of which gemm_blockwise adds the blocks before it adds them to d.
inline constexpr std::int64_t blockwise_superblock_rows = 8192;

/// d[M,N] (+)= op(a) · op(b) (+ bias), where op transposes if asked to; sums in f32. a and b have
/// the same type, f32, f16 or bf16; d has that type or f32. The three products of a linear layer:
///   Y = X[M,K] · W[N,K]ᵀ: transpose_b;  dX = G[M,N] · W[N,K]: neither;  dW = Gᵀ · X: transpose_a.
struct StandardGemmArgs {
  ConstAnyMatrix a = {};         ///< [M,K], or [K,M] with transpose_a
  ConstAnyMatrix b = {};         ///< [K,N], or [N,K] with transpose_b
  AnyMatrix d = {};              ///< [M,N]
  bool transpose_a = false;      ///< op(a) = aᵀ
  bool transpose_b = false;      ///< op(b) = bᵀ
  bool accumulate = false;       ///< add to the values in d
  ConstAnyMatrix bias = {};      ///< [1,N] f32, f16 or bf16; data null = none
  std::string_view engine = {};  ///< forces an engine by name; empty = chosen
};
/// The floating point product; see StandardGemmArgs.
SWITCHBACK_API void gemm_standard(Context& context, const StandardGemmArgs& args);

/// The engines of gemm and gemm_s8s8s32 in order of preference, each with the reason if it cannot
/// run on this Context.
SWITCHBACK_API std::vector<EngineInfo> gemm_engines(const Context& context);
/// The same for gemm_standard.
SWITCHBACK_API std::vector<EngineInfo> gemm_standard_engines(const Context& context);
/// The same for gemm_blockwise.
SWITCHBACK_API std::vector<EngineInfo> gemm_blockwise_engines(const Context& context);

}  // namespace switchback
