// SPDX-License-Identifier: Apache-2.0
#include "capi/allocation_hooks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "switchback/switchback.h"

namespace switchback::test {

bool is_of_library(void* code) {
  Dl_info there = {};
  Dl_info library = {};
  return dladdr(code, &there) != 0 &&
         dladdr(reinterpret_cast<void*>(&switchback_abi_version), &library) != 0 &&
         there.dli_fbase == library.dli_fbase;
}

}  // namespace switchback::test

namespace {

using switchback::test::may_allocate;

void* allocate(std::size_t bytes, std::size_t align, void* caller) {
  if (!may_allocate(caller)) return nullptr;
  void* memory = nullptr;
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return posix_memalign(&memory, align, bytes) == 0 ? memory : nullptr;
}

void* allocate_or_throw(std::size_t bytes, std::size_t align, void* caller) {
  void* memory = allocate(bytes, align, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// aligned_alloc is replaced because the library's large buffers come from it.
extern "C" void* aligned_alloc(std::size_t align, std::size_t bytes) noexcept {
  return allocate(bytes, std::max(align, sizeof(void*)), __builtin_return_address(0));
}

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, 1, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, 1, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1, __builtin_return_address(0));
}

// At -O3 GCC inlines the replaced functions and warns that free() does not match operator new.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
