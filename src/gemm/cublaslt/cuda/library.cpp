// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt/cuda/library.hpp"

#include <cstdlib>

#include "core/check.hpp"
#include "core/cuda/library.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::Library;

struct Loaded {
  CublasLt functions;
  std::string missing;
  std::string cannot_build;
};

template <class Function>
void find(const Library& library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(library.symbol(name));
  if (function == nullptr && missing.empty())
    missing = fmt::format("cuBLASLt was found, but lacks the function {}", name);
}

Loaded load() {
  Loaded loaded;
  // SWITCHBACK_CUBLASLT names the file of cuBLASLt if the loader would not find it. The file's code
  // runs with the rights of this program, so a program with more rights than its user ignores the
  // variable.
  const char* given = ::secure_getenv("SWITCHBACK_CUBLASLT");
  const Library library =
      given != nullptr && *given != '\0'
          ? Library({given})
          : Library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
  std::string& missing = loaded.missing;
  if (!library.loaded()) {
    missing = fmt::format(
        "cuBLASLt was not found ({}); install it, or set SWITCHBACK_CUBLASLT to the library's file",
        library.error());
    return loaded;
  }
  CublasLt& f = loaded.functions;
  find(library, "cublasLtCreate", f.create, missing);
  find(library, "cublasLtDestroy", f.destroy, missing);
  find(library, "cublasLtGetVersion", f.version, missing);
  find(library, "cublasLtGetStatusName", f.status_name, missing);
  find(library, "cublasLtMatmul", f.matmul, missing);
  find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic, missing);
  find(library, "cublasLtMatmulDescCreate", f.desc_create, missing);
  find(library, "cublasLtMatmulDescDestroy", f.desc_destroy, missing);
  find(library, "cublasLtMatmulDescSetAttribute", f.desc_set, missing);
  find(library, "cublasLtMatrixLayoutCreate", f.layout_create, missing);
  find(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy, missing);
  find(library, "cublasLtMatmulPreferenceCreate", f.preference_create, missing);
  find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy, missing);
  find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set, missing);
  std::string& cannot_build = loaded.cannot_build;
  find(library, "cublasLtMatmulAlgoInit", f.algo_init, cannot_build);
  find(library, "cublasLtMatmulAlgoCheck", f.algo_check, cannot_build);
  find(library, "cublasLtMatmulAlgoCapGetAttribute", f.algo_capability, cannot_build);
  find(library, "cublasLtMatmulAlgoConfigSetAttribute", f.algo_set, cannot_build);
  find(library, "cublasLtMatmulAlgoConfigGetAttribute", f.algo_get, cannot_build);
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

std::string_view type_name(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_8I:
      return "s8";
    case CUDA_R_32I:
      return "s32";
    case CUDA_R_16F:
      return "f16";
    case CUDA_R_16BF:
      return "bf16";
    default:
      return "f32";
  }
}

}  // namespace

const std::string& CublasLt::missing() {
  return loaded().missing;
}

const std::string& CublasLt::cannot_build() {
  return loaded().cannot_build;
}

const CublasLt& CublasLt::get() {
  return loaded().functions;
}

std::string cublaslt_version() {
  if (!CublasLt::missing().empty()) return CublasLt::missing();
  const std::size_t version = CublasLt::get().version();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

void Product::choose(std::int64_t ranked_place, const CublasLtChoice& choice) {
  // If a product names its algorithm, the position in the ranking does not matter.
  place = choice.algorithm.has_value() ? 0 : ranked_place;
  algorithm = choice.algorithm;
  most_workspace_bytes = workspace_bytes(choice);
}

std::uint32_t Product::reductions() const noexcept {
  const bool of_16_bits = type_d == CUDA_R_16F || type_d == CUDA_R_16BF;
  return of_16_bits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
}

std::string describe(const Product& p) {
  return fmt::format("{}·{} -> {} m {} n {} k {} {}{} ld {} {} {}{}{}, algorithm {}, workspace {}",
                     type_name(p.type_a), type_name(p.type_b), type_name(p.type_d), p.m, p.n, p.k,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.lda, p.ldb, p.ldd,
                     p.bias ? " + bias" : "", p.accumulate ? ", accumulate" : "",
                     p.algorithm.has_value() ? describe(*p.algorithm) : std::to_string(p.place),
                     p.most_workspace_bytes);
}

std::uint32_t alignment_of(const void* data) noexcept {
  std::uint32_t alignment = 256;
  while (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    alignment /= 2;
  return alignment;
}

void check(cublasStatus_t status, std::string_view call, const Product& product) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const Status kind = status == CUBLAS_STATUS_ALLOC_FAILED    ? Status::out_of_memory
                      : status == CUBLAS_STATUS_NOT_SUPPORTED ? Status::unsupported
                                                              : Status::device_error;
  core::fail(kind, "{} of {}: {}", call, describe(product), status_text(status));
}

std::string status_text(cublasStatus_t status) {
  return fmt::format("{} ({})", CublasLt::get().status_name(status), static_cast<int>(status));
}

Descriptors::Descriptors(const Product& product) : Descriptors() {
  // The delegated constructor has finished, so the destructor runs if a call here fails.
  make(product);
}

void Descriptors::make(const Product& p) {
  const CublasLt& lt = CublasLt::get();
  const auto rows = [](bool transposed, std::int64_t outer, std::int64_t inner) {
    return static_cast<std::uint64_t>(transposed ? inner : outer);
  };
  check(lt.desc_create(&matmul, p.compute, p.scale_type()), "cublasLtMatmulDescCreate", p);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check(lt.desc_set(matmul, what, &value, sizeof value), "cublasLtMatmulDescSetAttribute", p);
  };
  const cublasOperation_t op_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, op_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
  if (p.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const std::int32_t bias_type = p.type_d;
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
    // cuBLASLt's heuristics use only the alignment of the bias pointer, never its target.
    const void* const some_aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_aligned);
  }
  check(lt.layout_create(&a, p.type_a, rows(p.transpose_a, p.m, p.k),
                         rows(!p.transpose_a, p.m, p.k), p.lda),
        "cublasLtMatrixLayoutCreate of A", p);
  check(lt.layout_create(&b, p.type_b, rows(p.transpose_b, p.k, p.n),
                         rows(!p.transpose_b, p.k, p.n), p.ldb),
        "cublasLtMatrixLayoutCreate of B", p);
  check(lt.layout_create(&d, p.type_d, static_cast<std::uint64_t>(p.m),
                         static_cast<std::uint64_t>(p.n), p.ldd),
        "cublasLtMatrixLayoutCreate of D", p);
}

Descriptors::~Descriptors() {
  const CublasLt& lt = CublasLt::get();
  if (d != nullptr) (void)lt.layout_destroy(d);
  if (b != nullptr) (void)lt.layout_destroy(b);
  if (a != nullptr) (void)lt.layout_destroy(a);
  if (matmul != nullptr) (void)lt.desc_destroy(matmul);
}

}  // namespace switchback::products::cuda
