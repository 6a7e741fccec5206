// SPDX-License-Identifier: Apache-2.0
// Test support: operations of models on the emulated device.
#pragma once

namespace switchback::test {

/// Makes them known, beside those of the library; may be called again.
void install_emulated_models() noexcept;

}  // namespace switchback::test
