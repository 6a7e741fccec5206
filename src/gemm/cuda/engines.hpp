// SPDX-License-Identifier: Apache-2.0
// Engine zone: the CUDA engines of both products.
#pragma once

#include <span>
#include <string>

#include "gemm/floating/engine.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8 {

namespace cuda {
std::span<const Engine* const> int8_engines() noexcept;
}
namespace cuda_emulated {
std::span<const Engine* const> int8_engines() noexcept;
}

}  // namespace switchback::gemm_int8

namespace switchback::products {

/// "13.0.2", or why it is missing.
namespace cuda {
std::string cublaslt_version();
}
namespace cuda_emulated {
std::string cublaslt_version();
}

}  // namespace switchback::products

namespace switchback::floating {

namespace cuda {
std::span<const Engine* const> floating_engines() noexcept;
}
namespace cuda_emulated {
std::span<const Engine* const> floating_engines() noexcept;
}

}  // namespace switchback::floating
