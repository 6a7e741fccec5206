// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: fibers, which are stacks of which one at a time runs on an OS
// thread. Sanitizers are told of each switch.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

/// A stack on which code runs. A fiber runs from its entry function each time it is started. It may
/// switch back to the code that resumed it, and be resumed. It must switch back instead of
/// returning.
struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  ///< lowest address of the stack
  std::size_t stack_bytes = 0;
  bool started = false;
  void** tsan = nullptr;  ///< ThreadSanitizer's thread of this fiber, which other fibers may share
  void* asan_fake_stack = nullptr;
};

/// Creates a fiber and its stack, with an inaccessible page below the stack. Never returns null. To
/// ThreadSanitizer, fibers with the same `tsan` are one thread, whose state is stored there.
Fiber* fiber_create(void** tsan = nullptr);

/// Forgets what the fiber was doing; its next resume starts at the entry function.
void fiber_abandon(Fiber& fiber);

/// Tells ThreadSanitizer of a release at this address by the fiber, which is suspended.
void fiber_release(Fiber& fiber, void* address);

/// Runs `fiber` until it switches back. The first time it calls entry(). The scheduler calls this,
/// or a fiber that lets another one run in its place: that one switches back to the scheduler.
void fiber_resume(Fiber& fiber, void (*entry)());

/// Called on a fiber: switches back to the scheduler.
void fiber_switch_back();

}  // namespace switchback_cuda_emu
