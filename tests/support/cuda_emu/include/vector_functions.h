// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: make_float4 and similar functions, under the name of CUDA's header.
#pragma once

#include "switchback_cuda_emu/vector_types.h"

using namespace switchback_cuda_emu::names;
