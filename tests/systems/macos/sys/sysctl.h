// SPDX-License-Identifier: Apache-2.0
// For tools/lint --systems: the function of macOS that the library calls.
#pragma once
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
int sysctlbyname(const char* name, void* old_value, size_t* old_size, void* new_value,
                 size_t new_size);
#ifdef __cplusplus
}
#endif
