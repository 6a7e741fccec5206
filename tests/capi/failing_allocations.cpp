// SPDX-License-Identifier: Apache-2.0
// Only the library's own allocations fail: what others (oneDNN, OpenMP) do without memory is up to
// them.
#include "capi/failing_allocations.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "switchback/switchback.h"

namespace {

// Allocations that may still succeed; negative: all of them.
thread_local long allocations_left = -1;
thread_local switchback::test::Refuse refuse_how = switchback::test::Refuse::from_then;
thread_local bool refused = false;

// Whether code of the library under test (this program, if that is static) lies at the address.
bool is_ours(void* code) {
  Dl_info there = {};
  Dl_info library = {};
  return dladdr(code, &there) != 0 &&
         dladdr(reinterpret_cast<void*>(&switchback_abi_version), &library) != 0 &&
         there.dli_fbase == library.dli_fbase;
}

bool may_allocate(void* caller) {
  if (allocations_left < 0 || !is_ours(caller)) return true;
  if (allocations_left == 0) {
    refused = true;
    if (refuse_how == switchback::test::Refuse::once) allocations_left = -1;
    return false;
  }
  --allocations_left;
  return true;
}

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

namespace switchback::test {

void refuse_allocations(long allowed, Refuse how) noexcept {
  allocations_left = allowed;
  refuse_how = how;
  refused = false;
}

bool stop_refusing() noexcept {
  allocations_left = -1;
  return refused;
}

}  // namespace switchback::test

// The library's large buffers come from aligned_alloc.
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

// GCC sees through a replaced pair at -O3 and takes free() for the wrong partner of operator new.
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
