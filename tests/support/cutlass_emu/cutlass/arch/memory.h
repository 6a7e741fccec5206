// SPDX-License-Identifier: Apache-2.0
// Test support: replaces CUTLASS's header of this name: accesses to global memory in C++.
#pragma once

#include <cstring>

#include "cutlass/arch/cache_operation.h"
#include "cutlass/cutlass.h"

namespace cutlass::arch {

template <class Access, int Bytes, CacheOperation::Kind = CacheOperation::Always>
struct global_load {
  global_load(Access& to, const void* from, bool guard) {
    if (guard) std::memcpy(&to, from, Bytes);
  }
};

template <class Access, int Bytes>
struct global_store {
  global_store(const Access& from, void* to, bool guard) {
    if (guard) std::memcpy(to, &from, Bytes);
  }
};

}  // namespace cutlass::arch

#include "cutlass/arch/memory_sm75.h"
#include "cutlass/arch/memory_sm80.h"
