// SPDX-License-Identifier: Apache-2.0
// Test support: the CUDA runtime header of an emulated device, for .cu and host files in tests.
// Every name is in a namespace, none has C linkage: a program can also link the real runtime.
#pragma once

#include "cuda_runtime_api.h"
#include "switchback_cuda_emu/control.h"
#include "switchback_cuda_emu/device.h"
#include "switchback_cuda_emu/intrinsics.h"
#include "switchback_cuda_emu/launch.h"
#include "vector_types.h"
