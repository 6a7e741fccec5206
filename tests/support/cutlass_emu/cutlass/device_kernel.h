// SPDX-License-Identifier: Apache-2.0
// Test support: replaces CUTLASS's header of this name, whose kernels are not started here.
#pragma once
