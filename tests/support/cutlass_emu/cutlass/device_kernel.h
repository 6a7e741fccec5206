// SPDX-License-Identifier: Apache-2.0
// Test support: in place of CUTLASS's header of this name, whose kernels nobody here starts.
#pragma once
