// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: enumerations and handles, under the name of CUDA's header.
#pragma once

#include "switchback_cuda_emu/api.h"

using namespace switchback_cuda_emu::names;
