// SPDX-License-Identifier: Apache-2.0
// Core: a pragma that unrolls loops of kernels.
#pragma once

// Unrolls a loop fully: otherwise an array of accumulators in it is not kept in registers.
#if defined(__clang__)
#define SWITCHBACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SWITCHBACK_UNROLL _Pragma("GCC unroll 16")
#endif
