// SPDX-License-Identifier: Apache-2.0
// CUDA core: includes the CUDA runtime's header. The backend is compiled twice from the same
// sources: for GPUs, with the toolkit's header, and for tests, with the header of a device that the
// CPU emulates. A program links one of the two.
#pragma once

#include <cuda_runtime.h>
