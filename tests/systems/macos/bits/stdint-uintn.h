// SPDX-License-Identifier: Apache-2.0
// For tools/lint --systems: unsigned integers as macOS defines them. glibc's 64-bit type is
// unsigned long.
#ifndef _BITS_STDINT_UINTN_H
#define _BITS_STDINT_UINTN_H 1
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#endif
