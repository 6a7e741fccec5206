// SPDX-License-Identifier: Apache-2.0
// Engine zone: shared by the engines built on oneDNN.
#pragma once

#include <string>
#include <string_view>

namespace switchback::floating {

/// Empty, or why oneDNN cannot be used at all.
std::string onednn_unavailable();
/// Whether oneDNN has bf16 instructions to multiply with. Otherwise it emulates them, which is
/// slower than widening to f32.
bool onednn_has_native_bf16();

/// Throws the Error for a dnnl_status_t that is not success, naming the call.
void check_onednn(int status, std::string_view call);

}  // namespace switchback::floating
