// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/cublaslt.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/check.hpp"
#include "core/cuda/library.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

using core::SWITCHBACK_CUDA_NS::Library;
using core::SWITCHBACK_CUDA_NS::Runtime;

// What the library may use beside the operands. 32 MiB is what NVIDIA recommends from Hopper on;
// older devices' algorithms ask for less, and only what the chosen one asks for is taken.
constexpr std::size_t most_workspace_bytes = std::size_t{32} << 20;
// Algorithms kept of a product: the library's ranking is long, its tail never wins.
constexpr int most_algorithms = 8;

struct Loaded {
  CublasLt functions;
  std::string missing;
};

template <class Function>
void find(const Library& library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(library.symbol(name));
  if (function == nullptr && missing.empty())
    missing = fmt::format("cuBLASLt was found, but has no {}", name);
}

Loaded load() {
  Loaded loaded;
  // SWITCHBACK_CUBLASLT names the file where the loader would not find it.
  const char* given = std::getenv("SWITCHBACK_CUBLASLT");
  const Library library =
      given != nullptr && *given != '\0'
          ? Library({given})
          : Library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
  std::string& missing = loaded.missing;
  if (!library.loaded()) {
    missing = fmt::format(
        "cuBLASLt was not found ({}); install it, or name the file in "
        "SWITCHBACK_CUBLASLT",
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
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

void check(cublasStatus_t status, std::string_view call, const Product& product) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const Status kind = status == CUBLAS_STATUS_ALLOC_FAILED    ? Status::out_of_memory
                      : status == CUBLAS_STATUS_NOT_SUPPORTED ? Status::unsupported
                                                              : Status::device_error;
  core::fail(kind, "{} of {}: {} ({})", call, describe(product),
             CublasLt::get().status_name(status), static_cast<int>(status));
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

// Ends a preference when the plan is made, or was not.
struct Preference {
  explicit Preference(const Product& product) {
    check(CublasLt::get().preference_create(&handle), "cublasLtMatmulPreferenceCreate", product);
  }
  ~Preference() { (void)CublasLt::get().preference_destroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t what, Value value, const Product& product) {
    check(CublasLt::get().preference_set(handle, what, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", product);
  }
  cublasLtMatmulPreference_t handle = nullptr;
};

}  // namespace

const std::string& CublasLt::missing() {
  return loaded().missing;
}

const CublasLt& CublasLt::get() {
  return loaded().functions;
}

std::string cublaslt_version() {
  if (!CublasLt::missing().empty()) return CublasLt::missing();
  const std::size_t version = CublasLt::get().version();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string describe(const Product& p) {
  return fmt::format("{}·{} -> {} m {} n {} k {} {}{} ld {} {} {}{}{}, algorithm {}",
                     type_name(p.type_a), type_name(p.type_b), type_name(p.type_d), p.m, p.n, p.k,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.lda, p.ldb, p.ldd,
                     p.bias ? " + bias" : "", p.accumulate ? ", accumulate" : "", p.algorithm);
}

std::uint32_t alignment_of(const void* data) noexcept {
  std::uint32_t alignment = 256;
  while (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    alignment /= 2;
  return alignment;
}

Plan::Plan(cublasLtHandle_t handle, const Product& p) : product_(p) {
  const CublasLt& lt = CublasLt::get();
  const bool integers = p.compute == CUBLAS_COMPUTE_32I;
  const auto rows = [](bool transposed, std::int64_t outer, std::int64_t inner) {
    return static_cast<std::uint64_t>(transposed ? inner : outer);
  };
  check(lt.desc_create(&descriptors_.matmul, p.compute, integers ? CUDA_R_32I : CUDA_R_32F),
        "cublasLtMatmulDescCreate", p);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check(lt.desc_set(descriptors_.matmul, what, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute", p);
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
    // The heuristics look at its alignment, never at what it points to.
    const void* const some_aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_aligned);
  }
  check(lt.layout_create(&descriptors_.a, p.type_a, rows(p.transpose_a, p.m, p.k),
                         rows(!p.transpose_a, p.m, p.k), p.lda),
        "cublasLtMatrixLayoutCreate of A", p);
  check(lt.layout_create(&descriptors_.b, p.type_b, rows(p.transpose_b, p.k, p.n),
                         rows(!p.transpose_b, p.k, p.n), p.ldb),
        "cublasLtMatrixLayoutCreate of B", p);
  check(lt.layout_create(&descriptors_.d, p.type_d, static_cast<std::uint64_t>(p.m),
                         static_cast<std::uint64_t>(p.n), p.ldd),
        "cublasLtMatrixLayoutCreate of D", p);

  Preference preference(p);
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace_bytes, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_a, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_b, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_d, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_d, p);
  std::array<cublasLtMatmulHeuristicResult_t, most_algorithms> results{};
  int count = 0;
  const cublasStatus_t status =
      lt.heuristic(handle, descriptors_.matmul, descriptors_.a, descriptors_.b, descriptors_.d,
                   descriptors_.d, preference.handle, most_algorithms, results.data(), &count);
  // NOT_SUPPORTED is how it says that it found nothing.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic", p);
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) found_.push_back(result);
  }
  if (found_.empty())
    core::fail(Status::unsupported, "cuBLASLt has no algorithm for {}", describe(p));
  // A tuned algorithm is the one meant, the default may be followed by the others. A place that
  // this version of the library does not rank is the default's: what was tuned elsewhere must not
  // fail.
  const bool ranked = p.algorithm < static_cast<std::int64_t>(found_.size());
  if (ranked && p.algorithm != 0) found_ = {found_[static_cast<std::size_t>(p.algorithm)]};
}

Plan::Descriptors::~Descriptors() {
  const CublasLt& lt = CublasLt::get();
  if (d != nullptr) (void)lt.layout_destroy(d);
  if (b != nullptr) (void)lt.layout_destroy(b);
  if (a != nullptr) (void)lt.layout_destroy(a);
  if (matmul != nullptr) (void)lt.desc_destroy(matmul);
}

std::size_t Plan::workspace_bytes() const noexcept {
  // Of all that run() may come to use.
  std::size_t most = 0;
  for (const auto& result : found_)
    most = std::max(most, result.workspaceSize);
  return most;
}

void Plan::run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
               void* workspace, cudaStream_t stream) {
  const CublasLt& lt = CublasLt::get();
  if (product_.bias)
    check(lt.desc_set(descriptors_.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
          "cublasLtMatmulDescSetAttribute", product_);
  const std::int32_t one_s32 = 1;
  const std::int32_t beta_s32 = product_.accumulate ? 1 : 0;
  const float one_f32 = 1.0f;
  const float beta_f32 = product_.accumulate ? 1.0f : 0.0f;
  const bool integers = product_.compute == CUBLAS_COMPUTE_32I;
  const void* const alpha = integers ? static_cast<const void*>(&one_s32) : &one_f32;
  const void* const beta = integers ? static_cast<const void*>(&beta_s32) : &beta_f32;
  for (;;) {
    const auto& best = found_.front();
    const cublasStatus_t status = lt.matmul(
        handle, descriptors_.matmul, alpha, a, descriptors_.a, b, descriptors_.b, beta, d,
        descriptors_.d, d, descriptors_.d, &best.algo, workspace, best.workspaceSize, stream);
    // The library's check does not promise that an algorithm runs; the call does.
    const bool refused =
        status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (!refused || found_.size() == 1) return check(status, "cublasLtMatmul", product_);
    found_.erase(found_.begin());
  }
}

Plans& Plans::of(Runtime& runtime) {
  using Slot = Runtime::Slot;
  if (auto* known = static_cast<Plans*>(runtime.extension(Slot::gemm)); known != nullptr) {
    // A server meets every number of rows there is. Plans are host memory: dropping them is safe.
    constexpr std::size_t most_plans = 4096;
    if (known->plans_.size() > most_plans) known->plans_.clear();
    return *known;
  }
  if (!CublasLt::missing().empty()) core::fail(Status::unsupported, "{}", CublasLt::missing());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = CublasLt::get().create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS)
    core::fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Status::out_of_memory : Status::device_error,
               "cublasLtCreate: {} ({})", CublasLt::get().status_name(status),
               static_cast<int>(status));
  auto fresh = std::unique_ptr<Plans>(new Plans(handle));
  Plans& plans = *fresh;
  runtime.set_extension(Slot::gemm, std::move(fresh));
  return plans;
}

Plans::~Plans() {
  plans_.clear();
  (void)CublasLt::get().destroy(handle_);
}

Plan& Plans::plan(const Product& product) {
  auto& place = plans_[product];
  if (place == nullptr) {
    try {
      place = std::make_unique<Plan>(handle_, product);
    } catch (...) {
      plans_.erase(product);
      throw;
    }
  }
  return *place;
}

std::size_t Plans::Hash::operator()(const Product& p) const noexcept {
  std::uint64_t hash = 0x9E3779B97F4A7C15ull;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 31;
  };
  mix(static_cast<std::int64_t>(p.type_a) << 32 | static_cast<std::int64_t>(p.type_d));
  mix(static_cast<std::int64_t>(p.compute));
  mix((p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
      (p.bias ? 8 : 0) | p.algorithm << 8);
  for (const std::int64_t value : {p.m, p.n, p.k, p.lda, p.ldb, p.ldd})
    mix(value);
  mix(static_cast<std::int64_t>(p.align_a) << 32 | p.align_b << 16 | p.align_d);
  return static_cast<std::size_t>(hash);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
