// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define SWITCHBACK_CUDA_EMU_UCONTEXT 1
#include <ucontext.h>
#endif

#ifdef SWITCHBACK_CUDA_EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SWITCHBACK_CUDA_EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// ucontext saves the signal mask, with a system call at each switch: several times the cost of
// everything else in a barrier. So the switch between fibers is in assembly where that is
// available.
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden switchback_cuda_emu_switch
.globl switchback_cuda_emu_switch
.type switchback_cuda_emu_switch, @function
switchback_cuda_emu_switch:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rdx
  jmp *%rdx
  .cfi_endproc
.size switchback_cuda_emu_switch, .-switchback_cuda_emu_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.hidden switchback_cuda_emu_switch
.globl switchback_cuda_emu_switch
.type switchback_cuda_emu_switch, %function
switchback_cuda_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size switchback_cuda_emu_switch, .-switchback_cuda_emu_switch
)");
#endif

#ifndef SWITCHBACK_CUDA_EMU_UCONTEXT
extern "C" void switchback_cuda_emu_switch(void** save, void* load);
#endif

namespace switchback_cuda_emu {
namespace {

// The size of a fiber's stack: sanitizers make frames several times as large. Pages that are never
// touched cost nothing.
constexpr std::size_t stack_bytes = std::size_t{256} << 10;
// Fibers begin at different distances from the ends of their stacks. Otherwise all of them would
// use the same few sets of the caches, and each switch would miss. Distances are multiples of a
// cache line.
constexpr std::size_t stagger_bytes = std::size_t{64} << 10;
constexpr std::size_t stagger_step = 17 * 64;

// There is one running scheduler at a time, because launches hold the device's lock.
[[maybe_unused]] void* scheduler_tsan = nullptr;
Fiber scheduler = {.tsan = &scheduler_tsan};
Fiber* current = &scheduler;
[[maybe_unused]] Fiber* previous = nullptr;  // ran before the current one
void (*current_entry)() = nullptr;

#ifdef SWITCHBACK_CUDA_EMU_UCONTEXT
ucontext_t& context(Fiber& fiber) {
  if (fiber.stack_pointer == nullptr) fiber.stack_pointer = std::calloc(1, sizeof(ucontext_t));
  return *static_cast<ucontext_t*>(fiber.stack_pointer);
}
#endif

#ifdef SWITCHBACK_CUDA_EMU_ASAN
void set_scheduler_stack(const void* bottom, std::size_t bytes) {
  scheduler.stack = static_cast<char*>(const_cast<void*>(bottom));
  scheduler.stack_bytes = bytes;
}
#endif

void switch_stacks(Fiber& to) {
  Fiber& from = *current;
  previous = &from;
  current = &to;
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  __sanitizer_start_switch_fiber(&from.asan_fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  // A switch does not synchronize fibers for ThreadSanitizer: only barriers order two threads of a
  // block.
  if (from.tsan != to.tsan) __tsan_switch_to_fiber(*to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef SWITCHBACK_CUDA_EMU_UCONTEXT
  swapcontext(&context(from), &context(to));
#else
  switchback_cuda_emu_switch(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  // Here `from` continues, perhaps on another OS thread: a fiber outlives a launch, and the next
  // launch may come from another thread.
  const void* left = nullptr;
  std::size_t left_bytes = 0;
  __sanitizer_finish_switch_fiber(from.asan_fake_stack, &left, &left_bytes);
  if (previous == &scheduler) set_scheduler_stack(left, left_bytes);
#endif
}

[[noreturn]] void begin() {
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  const void* left = nullptr;
  std::size_t left_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &left, &left_bytes);
  if (previous == &scheduler) set_scheduler_stack(left, left_bytes);
#endif
  current_entry();
  std::fputs("cuda_emu: a fiber returned\n", stderr);
  std::abort();
}

}  // namespace

Fiber* fiber_create(void** tsan) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  static std::size_t stagger = 0;
  void* memory = mmap(nullptr, stack_bytes + stagger_bytes + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* fiber = static_cast<Fiber*>(std::calloc(1, sizeof(Fiber)));
  if (memory == MAP_FAILED || fiber == nullptr || mprotect(memory, page, PROT_NONE) != 0) {
    std::fputs("cuda_emu: no memory for a stack\n", stderr);
    std::abort();
  }
  fiber->stack = static_cast<char*>(memory) + page;
  fiber->stack_bytes = stack_bytes + stagger;
  fiber->tsan = tsan;
  stagger = (stagger + stagger_step) % stagger_bytes;
  return fiber;
}

void fiber_abandon(Fiber& fiber) {
  if (!fiber.started) return;
  fiber.started = false;
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  // Frames that never returned have left AddressSanitizer's red zones in shadow memory.
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
#endif
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  if (*fiber.tsan != nullptr) __tsan_destroy_fiber(*fiber.tsan);
  *fiber.tsan = nullptr;
#endif
}

void fiber_release([[maybe_unused]] Fiber& fiber, [[maybe_unused]] void* address) {
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  if (*fiber.tsan == nullptr) return;
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(*fiber.tsan, __tsan_switch_to_fiber_no_sync);
  __tsan_release(address);
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
#endif
}

void fiber_resume(Fiber& fiber, void (*entry)()) {
#ifdef SWITCHBACK_CUDA_EMU_TSAN
  if (current == &scheduler) scheduler_tsan = __tsan_get_current_fiber();
  if (*fiber.tsan == nullptr) *fiber.tsan = __tsan_create_fiber(0);
#endif
  if (!fiber.started) {
    fiber.started = true;
    current_entry = entry;
#ifdef SWITCHBACK_CUDA_EMU_UCONTEXT
    ucontext_t& fresh = context(fiber);
    getcontext(&fresh);
    fresh.uc_stack.ss_sp = fiber.stack;
    fresh.uc_stack.ss_size = fiber.stack_bytes;
    fresh.uc_link = nullptr;
    makecontext(&fresh, begin, 0);
#else
    // The new stack looks as if begin() had called the switch: the registers that it restores, then
    // its return address.
    auto* top = reinterpret_cast<std::uintptr_t*>(fiber.stack + fiber.stack_bytes);
#if defined(__x86_64__)
    *--top = 0;  // begin() has no return address; 0 ends a backtrace
    *--top = reinterpret_cast<std::uintptr_t>(&begin);
    for (int i = 0; i < 6; ++i)
      *--top = 0;
#else
    top -= 20;
    for (int i = 0; i < 20; ++i)
      top[i] = 0;
    top[11] = reinterpret_cast<std::uintptr_t>(&begin);
#endif
    fiber.stack_pointer = top;
#endif
  }
  switch_stacks(fiber);
}

void fiber_switch_back() {
  switch_stacks(scheduler);
}

}  // namespace switchback_cuda_emu
