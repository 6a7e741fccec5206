// SPDX-License-Identifier: Apache-2.0
// Test support: operator new and aligned_alloc replaced, for a test program and the shared library
// that it is linked to. A program that uses this defines may_allocate().
#pragma once

namespace switchback::test {

/// Asked before each allocation, from any thread, with the address of the code that wants it; false
/// makes it fail. Defined by the program.
bool may_allocate(void* caller);

/// Whether code of the library under test (this program, if that is static) lies at the address.
bool is_of_library(void* code);

}  // namespace switchback::test
