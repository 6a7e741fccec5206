// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what an int8 product computes (GemmProblem), and the addresses of its operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "switchback/groups.hpp"
#include "switchback/types.hpp"

namespace switchback::gemm_int8 {

/// How packed codes are stored. `streaming` uses non-temporal stores, for codes that the caches
/// would not hold until a product reads them. With ordinary stores each line would first be read
/// from memory, only to be overwritten.
enum class Stores { cached, streaming };

/// The numbers of the engines. They never change, because tuned configurations are stored with
/// them. Append new ones here, and their names to engine_names.
enum class EngineId : std::int64_t {
  none = 0,
  reference = 1,
  avx2 = 2,
  avx_vnni = 3,
  avx512_vnni = 4,
  onednn = 5,
  cublaslt = 6,
  cublaslt_panels = 7,
  dp4a = 8,
  fused = 9,
  amx = 10,
  mma = 11,
  wgmma = 12,
  neon_dotprod = 13,
  neon_i8mm = 14,
};
inline constexpr EngineId last_engine_id = EngineId::neon_i8mm;

inline constexpr std::array<std::string_view, 15> engine_names = {
    "none",     "reference",       "avx2",     "avx_vnni", "avx512_vnni", "onednn",
    "cublaslt", "cublaslt_panels", "dp4a",     "fused",    "amx",         "mma",
    "wgmma",    "neon_dotprod",    "neon_i8mm"};

/// The name of an engine, for example "avx512_vnni"; "unknown" for an unknown number.
constexpr std::string_view engine_name(EngineId id) noexcept {
  const auto number = static_cast<std::size_t>(id);
  return number < engine_names.size() ? engine_names[number] : "unknown";
}

/// How int32 sums become outputs.
enum class ScaleMode : std::int64_t {
  none = 0,        ///< not scaled: outputs are the int32 sums
  row_col = 1,     ///< scaled by absmax_a[row] and absmax_b[column]
  row_scalar = 2,  ///< scaled by absmax_a[row] and absmax_b[0]
};

/// Whether the problem consists of many products with the same n and k, one for each group of rows,
/// and how the groups are laid out. The values of groups never change, because they are part of
/// tuning records.
enum class GroupLayout : std::int64_t {
  packed = 0,   ///< the rows of one group after those of another
  strided = 1,  ///< each group has group_rows slots (rows)
  columns = 2,  ///< as strided in a; in d the groups are next to each other
  none = 3,     ///< one product, without groups
};

/// d[m,n] = epilogue(a[m,k] · b[n,k]ᵀ): everything that the choice of a configuration may depend
/// on. With groups, each group has its own matrix [n,k] in b, its scales and its bias, one group
/// after another.
struct GemmProblem {
  std::int64_t m = 0;  ///< with groups: the slots (rows) of all groups together
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;  ///< 0 if b is packed
  std::int64_t stride_d = 0;
  DType output = DType::s32;
  ScaleMode scale = ScaleMode::none;
  bool has_bias = false;
  DType bias = DType::f32;               ///< type of the bias; f32 without a bias
  EngineId packed_for = EngineId::none;  ///< the engine that packed b; none: b is not packed
  std::int64_t alignment = 0;            ///< core::alignment_class() of the operands' addresses
  GroupLayout layout = GroupLayout::none;
  std::int64_t groups = 1;
  std::int64_t group_rows = 0;  ///< strided and columns: slots of each group
  /// For layout columns: the step from one group's d to the next, see GroupedGemmArgs
  std::int64_t d_column_stride = 0;
  std::int64_t packed_step_bytes = 0;  ///< bytes between the packed b of consecutive groups

  [[nodiscard]] constexpr bool has_groups() const noexcept { return layout != GroupLayout::none; }
  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

/// A problem as text, for example "m=8 n=64 k=256 f32 row_col bias=f16 packed=avx2 strides
/// 256,0,64"; with groups the text begins with "groups=8 strided rows=32 columns=0, each ".
std::string describe(const GemmProblem& problem);

core::ProblemSize size_of(const GemmProblem& problem) noexcept;

// The constants and functions that core/tunable.hpp requires of operations that can be tuned.
// tunable.cpp names the words (numbers) of a query. A query contains the Context's instruction set
// and number of threads, because one source may serve several Contexts. A query for groups has the
// bucket of the number of slots (core/rows_bucket.hpp), so that a mixture of experts has few
// different queries. from_query() then makes a problem with the largest number of slots that the
// bucket allows, and a packed_step_bytes of 0.
extern const core::Tunable tunable;
extern const core::Tunable grouped_tunable;
ConfigQuery to_query(const GemmProblem& problem, const ContextState& state) noexcept;
bool from_query(const ConfigQuery& query, GemmProblem& problem) noexcept;

/// The slots (rows of a) of one group.
struct GroupRows {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

/// The addresses of a problem's operands; strides are in the problem. With groups, the addresses
/// are those of slot 0 and group 0.
struct GemmOperands {
  const std::int8_t* a = nullptr;
  const std::int8_t* b = nullptr;  ///< null if b is packed
  const void* packed_b = nullptr;  ///< written by the engine's pack(); null if b is not packed
  void* d = nullptr;
  const float* absmax_a = nullptr;
  const float* absmax_b = nullptr;
  const void* bias = nullptr;
  std::span<const GroupRows> rows = {};  ///< the groups on the CPU, [groups]
  Groups groups = {};                    ///< the groups on a GPU: arrays that only kernels may read
};

/// The problem of one group that has the mean number of rows, at least one row.
GemmProblem mean_problem(const GemmProblem& problem) noexcept;
/// The problem and the operands of one group.
GemmProblem problem_of(const GemmProblem& problem, const GroupRows& group) noexcept;
GemmOperands operands_of(const GemmProblem& problem, const GemmOperands& operands,
                         std::int64_t group) noexcept;

/// Bytes between the packed b of consecutive groups: packed_bytes() of an engine, rounded up for
/// alignment.
constexpr std::int64_t packed_step(std::size_t packed_bytes) noexcept {
  return (static_cast<std::int64_t>(packed_bytes) + 255) / 256 * 256;
}

}  // namespace switchback::gemm_int8
