// SPDX-License-Identifier: Apache-2.0
// Core: a pragma for kernel files.
#pragma once

// Full unrolling: without it, an array of accumulators is not kept in registers.
#if defined(__clang__)
#define SWITCHBACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SWITCHBACK_UNROLL _Pragma("GCC unroll 16")
#endif
