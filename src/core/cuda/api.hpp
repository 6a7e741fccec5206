// SPDX-License-Identifier: Apache-2.0
// CUDA core: the runtime's header, and the namespace of everything that is compiled against it.
// The backend is compiled twice: for GPUs in namespace switchback::…::cuda, and, for tests, against
// a device that the CPU emulates, in switchback::…::cuda_emulated. Both can live in one program.
#pragma once

#include <cuda_runtime.h>

#if defined(SWITCHBACK_CUDA_EMULATED)
#define SWITCHBACK_CUDA_NS cuda_emulated
#else
#define SWITCHBACK_CUDA_NS cuda
#endif
