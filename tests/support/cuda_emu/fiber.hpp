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
  void* tsan = nullptr;  ///< ThreadSanitizer's state of this fiber
  void* asan_fake_stack = nullptr;
};

/// Creates a fiber and its stack, with an inaccessible page below the stack. Never returns null.
Fiber* fiber_create();

/// Forgets what the fiber was doing; its next resume starts at the entry function.
void fiber_abandon(Fiber& fiber);

/// Called by the scheduler: runs `fiber` until it switches back. The first time it calls entry().
void fiber_resume(Fiber& fiber, void (*entry)());

/// Called on a fiber: switches back to the scheduler.
void fiber_switch_back();

}  // namespace switchback_cuda_emu
