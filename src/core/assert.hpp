// SPDX-License-Identifier: Apache-2.0
// Core: what engines state instead of checking: entry points have validated already. On in builds
// with SWITCHBACK_ASSERTIONS, nothing otherwise.
#pragma once

#if defined(SWITCHBACK_ASSERTIONS)
#include <cstdio>
#include <cstdlib>
#define SWITCHBACK_ASSERT(condition)                                                         \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
#else
#define SWITCHBACK_ASSERT(condition) static_cast<void>(0)
#endif
