// SPDX-License-Identifier: Apache-2.0
// Tuner: the proof of int32 sums, which tasks of int8 products share.
#pragma once

#include <cstdint>
#include <string>

#include "switchback/matrix.hpp"

namespace switchback::autotune {

/// What is wrong with sums[m,n] = a[m,k] · b[n,k]ᵀ, of which all elements are looked at for the
/// price of reading them; empty: they are exact. The matrices are the host's.
std::string check_sums(MatrixView<const std::int8_t> a, MatrixView<const std::int8_t> b,
                       MatrixView<const std::int32_t> sums);

}  // namespace switchback::autotune
