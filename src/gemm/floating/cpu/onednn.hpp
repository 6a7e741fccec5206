// SPDX-License-Identifier: Apache-2.0
// Engine zone: functions that the engines built on oneDNN share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::floating {

/// Why oneDNN cannot be used at all; empty if it can.
std::string onednn_unavailable();
/// Whether oneDNN multiplies bf16 matrices of this inner dimension with bf16 instructions. Without
/// them it emulates bf16, which is slower than widening to f32. With AMX and an inner dimension of
/// 63, its kernel ends the process by an illegal instruction (seen in 2.6.3 and 2.7.3:
/// github.com/uxlfoundation/oneDNN/issues/1661).
bool onednn_multiplies_bf16(std::int64_t k);

/// Throws the Error for a dnnl_status_t that is not success. The message names the call.
void check_onednn(int status, std::string_view call);

}  // namespace switchback::floating
