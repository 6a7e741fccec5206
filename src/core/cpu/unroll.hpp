// SPDX-License-Identifier: Apache-2.0
// Core: a pragma for kernel files.
#pragma once

// Full unrolling, without which an array of accumulators does not become registers.
#if defined(__clang__)
#define SWITCHBACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SWITCHBACK_UNROLL _Pragma("GCC unroll 16")
#endif
