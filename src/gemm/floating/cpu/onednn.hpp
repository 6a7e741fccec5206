// SPDX-License-Identifier: Apache-2.0
// Engine zone: shared by the engines built on oneDNN.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::floating {

/// Empty, or why oneDNN cannot be used at all.
std::string onednn_unavailable();
/// Whether oneDNN multiplies bf16 matrices of this inner dimension with bf16 instructions.
/// Otherwise it emulates them, which is slower than widening to f32; or, with AMX and an inner
/// dimension of 63, its kernel ends the process by an illegal instruction (seen in 2.6.3 and 2.7.3:
/// github.com/uxlfoundation/oneDNN/issues/1661).
bool onednn_multiplies_bf16(std::int64_t k);

/// Throws the Error for a dnnl_status_t that is not success, naming the call.
void check_onednn(int status, std::string_view call);

}  // namespace switchback::floating
