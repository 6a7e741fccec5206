// SPDX-License-Identifier: Apache-2.0
// Entry zone: checks that the compiler's language is C++20, which the C++ headers are written in.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "switchback's C++ headers need C++20 (-std=c++20); switchback.h needs C99 or C++14"
#endif
