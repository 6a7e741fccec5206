// SPDX-License-Identifier: Apache-2.0
// Test support: replaces operator new and aligned_alloc, for a test program and the shared library
// that it is linked to. A program that uses this defines may_allocate().
#pragma once

namespace switchback::test {

/// Called before each allocation, from any thread, with the address of the code that allocates. If
/// it returns false, the allocation fails. The test program defines this function.
bool may_allocate(void* caller);

/// Whether the address is in code of the switchback library (of this program, if the library is
/// static).
bool is_of_library(void* code);

}  // namespace switchback::test
