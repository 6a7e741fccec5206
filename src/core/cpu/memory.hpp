// SPDX-License-Identifier: Apache-2.0
// Core: the host's memory, as the system tells of it.
#pragma once

#include <cstddef>

namespace switchback::core {

/// Bytes of memory, and the part of it that can be had now; 0 where the system does not tell.
std::size_t memory_bytes();
std::size_t available_memory_bytes();

}  // namespace switchback::core
