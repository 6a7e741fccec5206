// SPDX-License-Identifier: Apache-2.0
// cuBLASLt stand-in: cublasLtMatmul, and the look-up of the library's functions by name.
#include <cstring>
#include <string>
#include <string_view>

#include "lt_state.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

constexpr std::uintptr_t workspace_alignment = 256;

bool aligned(const void* pointer, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

// The largest power of two, up to 256, that divides the address.
std::uint32_t alignment_of(const void* pointer) {
  std::uint32_t alignment = 1;
  while (alignment < 256 && aligned(pointer, alignment * 2))
    alignment *= 2;
  return alignment;
}

double read_scalar(const void* at, std::int32_t scale) {
  if (scale == CUDA_R_32I) {
    std::int32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  float value = 0.0f;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Operand {
  const char* name;
  const void* at;
  std::size_t bytes;
};

// Checks an operand's memory as a GPU would when it runs the product.
bool check_memory(const Operand& operand, int device) {
  if (device_accessible(operand.at, operand.bytes, device)) return true;
  set_fault(std::string("cublasLtMatmul: ") + operand.name + " is not " +
            std::to_string(operand.bytes) + " bytes of the device's memory");
  return false;
}

}  // namespace

namespace names {

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream_handle) {
  return library_call("cublasLtMatmul", [&] {
    if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid(desc) || !valid(a_layout) || !valid(b_layout) || !valid(c_layout) ||
        !valid(d_layout) || alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr ||
        c == nullptr || d == nullptr)
      return CUBLAS_STATUS_INVALID_VALUE;
    // A handle belongs to the device that was current when it was created.
    if (handle->device != current_device()) return CUBLAS_STATUS_INVALID_VALUE;
    LtProblem p;
    if (const cublasStatus_t status =
            check_problem(*desc, *a_layout, *b_layout, *c_layout, *d_layout, &p))
      return status;
    if (c == d && c_layout->ld != d_layout->ld) return CUBLAS_STATUS_INVALID_VALUE;
    if (p.has_bias() && p.desc.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes > 0 && (workspace == nullptr || !aligned(workspace, workspace_alignment)))
      return CUBLAS_STATUS_INVALID_VALUE;

    const std::uint32_t alignment[4] = {alignment_of(a), alignment_of(b), alignment_of(c),
                                        alignment_of(d)};
    LtAlgo chosen{};
    if (algo != nullptr)
      chosen = unpack(*algo);
    else if (!default_algo(p, alignment, workspace_bytes, &chosen))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    std::size_t needed_workspace = 0;
    std::uint32_t needed_alignment = 0;
    if (const cublasStatus_t status = check_algo(p, chosen, &needed_workspace, &needed_alignment))
      return status;
    if (needed_workspace > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    for (const std::uint32_t real : alignment)
      if (real < needed_alignment) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.has_bias() && !aligned(p.desc.bias, element_bytes(p.bias_type)))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (matches(options().refuse_at_run, chosen)) return CUBLAS_STATUS_NOT_SUPPORTED;

    const cudaStream_t stream = resolve(stream_handle);
    if (stream == nullptr || stream->device->id != handle->device)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (check_legacy(stream) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    const LtScalars scalars{read_scalar(alpha, p.desc.scale), read_scalar(beta, p.desc.scale)};
    const bool corrupt = matches(options().corrupt, chosen);
    const cudaError_t error = enqueue(stream, [p, chosen, scalars, a, b, c, d, corrupt, workspace,
                                               needed_workspace, device = handle->device] {
      const auto bias_bytes =
          p.has_bias() ? static_cast<std::size_t>(p.m) * element_bytes(p.bias_type) : 0;
      for (const Operand& operand :
           {Operand{"A", a, extent_bytes(p.a)}, Operand{"B", b, extent_bytes(p.b)},
            Operand{"C", c, scalars.beta == 0.0 ? 0 : extent_bytes(p.c)},
            Operand{"D", d, extent_bytes(p.d)}, Operand{"the bias", p.desc.bias, bias_bytes},
            Operand{"the workspace", workspace, needed_workspace}})
        if (!check_memory(operand, device)) return cudaErrorIllegalAddress;
      // A real kernel leaves some data in its workspace, so the stand-in writes there too.
      if (needed_workspace > 0) std::memset(workspace, 0xa5, needed_workspace);
      compute_product(p, chosen, scalars, a, b, c, d, corrupt);
      return cudaSuccess;
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
  });
}

}  // namespace names

void* library_symbol(const char* library_prefix, const char* symbol) {
  const std::string_view library = library_prefix == nullptr ? "" : library_prefix;
  if (options().cublaslt_missing || symbol == nullptr ||
      options().cublaslt_missing_function == symbol ||
      (library.substr(0, 8) != "cublasLt" && library.substr(0, 11) != "libcublasLt"))
    return nullptr;
#define SWITCHBACK_CUDA_EMU_SYMBOL(name) \
  if (std::strcmp(symbol, #name) == 0) return reinterpret_cast<void*>(&names::name);
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtCreate)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtDestroy)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtGetStatusName)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtGetVersion)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulDescCreate)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulDescDestroy)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulDescSetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatrixLayoutCreate)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatrixLayoutDestroy)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatrixLayoutSetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulPreferenceCreate)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulPreferenceDestroy)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulPreferenceSetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoGetHeuristic)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoInit)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoCheck)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoCapGetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoConfigSetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmulAlgoConfigGetAttribute)
  SWITCHBACK_CUDA_EMU_SYMBOL(cublasLtMatmul)
#undef SWITCHBACK_CUDA_EMU_SYMBOL
  return nullptr;
}

}  // namespace switchback_cuda_emu
