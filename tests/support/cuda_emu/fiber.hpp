// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: fibers: several stacks of which one at a time runs on an OS thread.
// Sanitizers are told of each switch.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

/// One stack. A fiber runs from its entry each time it is started. It may switch back to the code
/// that resumed it, and be resumed. It must switch back instead of returning.
struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  ///< lowest address
  std::size_t stack_bytes = 0;
  bool started = false;
  void* tsan = nullptr;  ///< ThreadSanitizer's state of this fiber
  void* asan_fake_stack = nullptr;
};

/// Creates the stack, with an inaccessible page below it. Never returns null.
Fiber* fiber_create();

/// Forgets the state of the fiber; its next resume starts at the entry.
void fiber_abandon(Fiber& fiber);

/// From the scheduler: runs `fiber` until it switches back. The first time it calls entry().
void fiber_resume(Fiber& fiber, void (*entry)());

/// From a fiber: back to the scheduler.
void fiber_switch_back();

}  // namespace switchback_cuda_emu
