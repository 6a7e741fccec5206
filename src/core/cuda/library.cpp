// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/library.hpp"

#include <dlfcn.h>

namespace switchback::core::cuda {

Library::Library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      error_.clear();
      return;
    }
    const char* said = dlerror();
    // The error message is the loader's message for the first name.
    if (error_.empty()) error_ = said != nullptr ? said : "the library cannot be loaded";
  }
}

void* Library::symbol(const char* name) const noexcept {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

}  // namespace switchback::core::cuda
