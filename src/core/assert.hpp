// SPDX-License-Identifier: Apache-2.0
// Core: assertions for engines (implementations of operations), whose arguments were already
// checked by entry points. They do nothing in builds without SWITCHBACK_ASSERTIONS.
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
