// SPDX-License-Identifier: Apache-2.0
// Core: the size of the host's memory, as the system reports it.
#pragma once

#include <cstddef>

namespace switchback::core {

/// Bytes of host memory, and bytes that are available now; 0 if the system does not report them.
std::size_t memory_bytes();
std::size_t available_memory_bytes();

}  // namespace switchback::core
