// SPDX-License-Identifier: Apache-2.0
// cuBLASLt stand-in: handles, descriptors, layouts and preferences.
#include <cstring>
#include <set>

#include "lt_state.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

struct Handles {
  std::set<cublasLtHandle_t> contexts;
  std::set<cublasLtMatmulDesc_t> descs;
  std::set<cublasLtMatrixLayout_t> layouts;
  std::set<cublasLtMatmulPreference_t> preferences;
};
Handles& handles() {
  static auto* const the_handles = new Handles;
  return *the_handles;
}

template <class T>
void delete_all(std::set<T>& set) {
  for (const T handle : set)
    delete handle;
  set.clear();
}

template <class T>
cublasStatus_t destroy(std::set<T>& set, T handle) {
  if (set.erase(handle) == 0) return CUBLAS_STATUS_INVALID_VALUE;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

// The address and size of an attribute in its structure; null if the stand-in does not know the
// attribute.
struct Member {
  void* at = nullptr;
  std::size_t bytes = 0;
};
template <class T>
Member member(T& t) {
  return {&t, sizeof t};
}

Member find(cublasLtMatmulDescOpaque_t& d, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return member(d.transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return member(d.transb);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return member(d.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return member(d.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return member(d.bias_type);
  }
  return {};
}

Member find(cublasLtMatrixLayoutOpaque_t& l, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return member(l.order);
  }
  return {};
}

Member find(cublasLtMatmulPreferenceOpaque_t& p, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return member(p.workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return member(p.reduction_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return member(p.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return member(p.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return member(p.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return member(p.alignment[3]);
  }
  return {};
}

template <class Handle, class Attribute>
cublasStatus_t set_attribute(const char* name, Handle handle, Attribute attribute,
                             const void* value, std::size_t bytes) {
  return library_call(name, [&] {
    if (!valid(handle) || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const Member m = find(*handle, attribute);
    // The caller's size must equal the attribute's: the usual mistake is a wrong integer type.
    if (m.at == nullptr || m.bytes != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(m.at, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
}

}  // namespace

cublasStatus_t get_bytes(const void* member, std::size_t member_bytes, void* value,
                         std::size_t bytes, std::size_t* written) {
  if (value == nullptr || bytes < member_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, member, member_bytes);
  if (written != nullptr) *written = member_bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t library_call(const char* name, cublasStatus_t (*body)(void*), void* context) {
  const std::lock_guard guard(lock());
  const cudaError_t error = injected(name);
  if (error == cudaErrorMemoryAllocation) return CUBLAS_STATUS_ALLOC_FAILED;
  if (error == cudaErrorNotSupported) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (error != cudaSuccess) return CUBLAS_STATUS_INTERNAL_ERROR;
  return body(context);
}

bool valid(cublasLtHandle_t handle) {
  return handles().contexts.count(handle) != 0;
}
bool valid(cublasLtMatmulDesc_t desc) {
  return handles().descs.count(desc) != 0;
}
bool valid(cublasLtMatrixLayout_t layout) {
  return handles().layouts.count(layout) != 0;
}
bool valid(cublasLtMatmulPreference_t preference) {
  return handles().preferences.count(preference) != 0;
}

std::size_t library_handle_count() {
  const Handles& h = handles();
  return h.contexts.size() + h.descs.size() + h.layouts.size() + h.preferences.size();
}

void delete_library_handles() {
  Handles& h = handles();
  delete_all(h.contexts);
  delete_all(h.descs);
  delete_all(h.layouts);
  delete_all(h.preferences);
}

namespace names {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return library_call("cublasLtCreate", [&] {
    if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{device};
    handles().contexts.insert(*handle);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return library_call("cublasLtDestroy", [&] {
    if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    return destroy(handles().contexts, handle);
  });
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

std::size_t cublasLtGetVersion() {
  return options().cublaslt_version;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return library_call("cublasLtMatmulDescCreate", [&] {
    if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *desc = new cublasLtMatmulDescOpaque_t;
    (*desc)->compute = compute;
    (*desc)->scale = scale;
    handles().descs.insert(*desc);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return library_call("cublasLtMatmulDescDestroy", [&] { return destroy(handles().descs, desc); });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatmulDescSetAttribute", desc, attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  return library_call("cublasLtMatrixLayoutCreate", [&] {
    if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new cublasLtMatrixLayoutOpaque_t;
    (*layout)->type = static_cast<std::uint32_t>(type);
    (*layout)->rows = rows;
    (*layout)->cols = cols;
    (*layout)->ld = ld;
    handles().layouts.insert(*layout);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return library_call("cublasLtMatrixLayoutDestroy",
                      [&] { return destroy(handles().layouts, layout); });
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatrixLayoutSetAttribute", layout, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return library_call("cublasLtMatmulPreferenceCreate", [&] {
    if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *preference = new cublasLtMatmulPreferenceOpaque_t;
    handles().preferences.insert(*preference);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return library_call("cublasLtMatmulPreferenceDestroy",
                      [&] { return destroy(handles().preferences, preference); });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value, bytes);
}

}  // namespace names
}  // namespace switchback_cuda_emu
