// SPDX-License-Identifier: Apache-2.0
// Test support: the CUDA runtime header of an emulated device, for .cu and host files in tests. All
// names are in a namespace and have C++ linkage, so that a program can also link the real runtime.
#pragma once

#include "cuda_runtime_api.h"
#include "switchback_cuda_emu/control.h"
#include "switchback_cuda_emu/device.h"
#include "switchback_cuda_emu/intrinsics.h"
#include "switchback_cuda_emu/launch.h"
#include "vector_types.h"
