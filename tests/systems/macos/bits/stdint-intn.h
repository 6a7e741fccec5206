// SPDX-License-Identifier: Apache-2.0
// For tools/lint --systems: signed integers as macOS defines them. glibc's 64-bit type is long.
#ifndef _BITS_STDINT_INTN_H
#define _BITS_STDINT_INTN_H 1
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
#endif
