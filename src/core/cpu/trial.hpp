// SPDX-License-Identifier: Apache-2.0
// Core: finding out whether threads can be had before somebody needs them who cannot do without.
#pragma once

namespace switchback::core {

/// Creates `count` threads, to be alive at the same time, and ends them again. Throws
/// std::system_error (or bad_alloc) if they cannot be had.
void try_threads(int count);

}  // namespace switchback::core
