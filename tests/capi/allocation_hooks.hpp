// SPDX-License-Identifier: Apache-2.0
// Test support: operator new and aligned_alloc replaced, for a test program and the shared library
// that it is linked to. A program that uses this defines may_allocate().
#pragma once

namespace switchback::test {

/// Called before each allocation, from any thread, with the address of the code that allocates;
/// false makes the allocation fail. Defined by the program.
bool may_allocate(void* caller);

/// Whether the address is in code of the library under test (of this program, if the library is
/// static).
bool is_of_library(void* code);

}  // namespace switchback::test
