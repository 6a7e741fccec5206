// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a floating point product computes (Problem), how (Config), and the default
// configuration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tunable.hpp"
#include "gemm/cublaslt/choice.hpp"
#include "switchback/types.hpp"

namespace switchback::floating {

/// The numbers of the engines. Tuners store them, so they are never reused.
enum class EngineId : std::int64_t {
  reference = 0,
  onednn_sgemm = 1,
  onednn_matmul = 2,
  openblas = 3,
  cublaslt = 4,       ///< f32 products in f32
  cublaslt_tf32 = 5,  ///< f32 products in tf32: 10 bits of each factor's significand
};

std::string_view engine_name(EngineId id) noexcept;

/// d[m,n] (+)= op(a)[m,k] · op(b)[k,n] (+ bias[n]). lda, ldb and ldd are the leading dimensions of
/// the matrices in memory, in elements; for a matrix of one row they are its width.
struct Problem : ConfigOrigin {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
  DType input = DType::f32;
  DType output = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  int compute_capability = 0;  ///< compute capability of the CUDA device, 90 is sm_90; 0 on the CPU
  std::int64_t alignment = 0;  ///< core::alignment_class() of the operands' addresses
  friend bool operator==(const Problem&, const Problem&) = default;
};

/// A problem as text, for example "m 16 n 4096 k 4096 NT f32 -> f32 + bias, accumulate, threads 2".
std::string describe(const Problem& problem);
core::ProblemSize size_of(const Problem& problem) noexcept;

struct Config {
  EngineId engine = EngineId::reference;
  /// For onednn_matmul: whether b is first reordered to the layout that oneDNN prefers. This pays
  /// if b is read many times.
  bool pack_b = false;
  /// For cublaslt: the position of the algorithm in cuBLASLt's own ranking for the problem, if
  /// `cublaslt` names no algorithm.
  std::int64_t algorithm = 0;
  CublasLtChoice cublaslt = {};
  friend bool operator==(const Config&, const Config&) = default;
};

std::string describe(const Config& config);

// The constant and the functions that core/tunable.hpp requires of an operation that can be tuned.
// tunable.cpp names the words (numbers) of a query.
extern const core::Tunable tunable;
ConfigQuery to_query(const Problem& problem) noexcept;
bool from_query(const ConfigQuery& query, Problem& problem) noexcept;
ConfigChoice to_choice(const Config& config) noexcept;
bool from_choice(const ConfigChoice& choice, Config& config) noexcept;
/// Why a configuration cannot run a problem, whose m, n and k are at least 1; empty if it can.
std::string check_config(const Problem& problem, const Config& config, const ContextState& state);

/// The configurations worth measuring, the default first. May take milliseconds, but runs no
/// product. tf32 is never among them, because it is a different product.
std::vector<Config> candidates(const Problem& problem, const ContextState& state);
/// As candidates(), but with all algorithms of a library that has many (cuBLASLt).
std::vector<Config> all_candidates(const Problem& problem, const ContextState& state);
Config default_config(const Problem& problem, const ContextState& state);

}  // namespace switchback::floating
