// SPDX-License-Identifier: Apache-2.0
// The functions of torch's stable C interface that the compiled dispatch calls. They are looked up
// by name in the libraries that torch has loaded. So the dispatch is built without torch, and one
// build serves all versions of torch that have these functions: 2.10 and later.
#pragma once

#include <dlfcn.h>

#include <cstdint>

namespace dispatch {

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
using AOTITorchError = int32_t;
constexpr AOTITorchError TORCH_SUCCESS = 0;

#define DISPATCH_TORCH_FUNCTIONS(F)                                            \
  F(int32_t, aoti_torch_device_type_cpu, ())                                   \
  F(int32_t, aoti_torch_device_type_cuda, ())                                  \
  F(int32_t, aoti_torch_dtype_float32, ())                                     \
  F(int32_t, aoti_torch_dtype_float16, ())                                     \
  F(int32_t, aoti_torch_dtype_bfloat16, ())                                    \
  F(int32_t, aoti_torch_dtype_int8, ())                                        \
  F(int32_t, aoti_torch_layout_strided, ())                                    \
  F(bool, aoti_torch_grad_mode_is_enabled, ())                                 \
  F(AOTITorchError, torch_get_num_threads, (uint32_t*))                        \
  F(AOTITorchError, aoti_torch_delete_tensor_object, (AtenTensorHandle))       \
  F(AOTITorchError, aoti_torch_get_data_ptr, (AtenTensorHandle, void**))       \
  F(AOTITorchError, aoti_torch_get_layout, (AtenTensorHandle, int32_t*))       \
  F(AOTITorchError, aoti_torch_get_device_type, (AtenTensorHandle, int32_t*))  \
  F(AOTITorchError, aoti_torch_get_device_index, (AtenTensorHandle, int32_t*)) \
  F(AOTITorchError, aoti_torch_get_dtype, (AtenTensorHandle, int32_t*))        \
  F(AOTITorchError, aoti_torch_get_dim, (AtenTensorHandle, int64_t*))          \
  F(AOTITorchError, aoti_torch_get_sizes, (AtenTensorHandle, int64_t**))       \
  F(AOTITorchError, aoti_torch_get_strides, (AtenTensorHandle, int64_t**))     \
  F(AOTITorchError, aoti_torch_empty_strided,                                  \
    (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensorHandle*))

// Functions that torch has from 2.14 on; null in earlier versions. The last function's Python type
// may be null, which means torch.Tensor.
#define DISPATCH_LATER_TORCH_FUNCTIONS(F)                                   \
  F(AOTITorchError, torch_tensor_from_pyobject, (void*, AtenTensorHandle*)) \
  F(AOTITorchError, torch_tensor_to_pyobject, (AtenTensorHandle, void*, void**))

#define DISPATCH_DECLARE(result, name, arguments) inline result(*name) arguments = nullptr;
DISPATCH_TORCH_FUNCTIONS(DISPATCH_DECLARE)
DISPATCH_LATER_TORCH_FUNCTIONS(DISPATCH_DECLARE)
#undef DISPATCH_DECLARE

// Looks up all functions. Returns the name of a missing function or library; null if all were
// found.
inline const char* find_torch_functions() {
  constexpr const char* name_of_library = "libtorch_python.so";
  void* library = dlopen(name_of_library, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return name_of_library;
#define DISPATCH_FIND(result, name, arguments) \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name));
#define DISPATCH_DEMAND(result, name, arguments) \
  DISPATCH_FIND(result, name, arguments)         \
  if (name == nullptr) return #name;
  DISPATCH_TORCH_FUNCTIONS(DISPATCH_DEMAND)
  DISPATCH_LATER_TORCH_FUNCTIONS(DISPATCH_FIND)
#undef DISPATCH_DEMAND
#undef DISPATCH_FIND
  return nullptr;
}

}  // namespace dispatch
