// SPDX-License-Identifier: Apache-2.0
// Core: tests whether threads can be created, before code that cannot handle a failure does so.
#pragma once

namespace switchback::core {

/// Creates `count` threads, all alive at the same time, and ends them. Throws std::system_error (or
/// bad_alloc) if they cannot be created.
void try_threads(int count);

}  // namespace switchback::core
