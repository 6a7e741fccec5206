// SPDX-License-Identifier: Apache-2.0
// Test support: structs of the C ABI that begin with struct_size.
#pragma once

namespace switchback::test {

/// A zeroed struct of the present size.
template <class T>
T sized() {
  T made = {};
  made.struct_size = sizeof(T);
  return made;
}

}  // namespace switchback::test
