// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the host API, under the name that host files include.
#pragma once

#include "switchback_cuda_emu/api.h"

using namespace switchback_cuda_emu::names;
