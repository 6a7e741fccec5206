// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/cpu/onednn.hpp"

#include "core/check.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace switchback::floating {

#if defined(SWITCHBACK_HAVE_ONEDNN)

std::string onednn_unavailable() {
  return {};
}

bool onednn_multiplies_bf16(std::int64_t k) {
  // oneDNN's effective instruction set, which ONEDNN_MAX_CPU_ISA may have lowered. The bits of each
  // level include those of the levels below it.
  static const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  constexpr unsigned bf16 = dnnl_cpu_isa_avx512_core_bf16;
  constexpr unsigned amx = dnnl_cpu_isa_avx512_core_amx;
  constexpr std::int64_t crashes_with_amx = 63;
  return (isa & bf16) == bf16 && ((isa & amx) != amx || k != crashes_with_amx);
}

void check_onednn(int status, std::string_view call) {
  if (status == dnnl_success) return;
  const auto s = status == dnnl_out_of_memory   ? Status::out_of_memory
                 : status == dnnl_unimplemented ? Status::unsupported
                                                : Status::internal;
  const char* name = status == dnnl_out_of_memory       ? "out_of_memory"
                     : status == dnnl_invalid_arguments ? "invalid_arguments"
                     : status == dnnl_unimplemented     ? "unimplemented"
                     : status == dnnl_runtime_error     ? "runtime_error"
                                                        : "unknown";
  core::fail(s, "gemm_standard: oneDNN: {} failed with status {} ({})", call, status, name);
}

#else

std::string onednn_unavailable() {
  return "this build has no oneDNN";
}
bool onednn_multiplies_bf16(std::int64_t) {
  return false;
}
void check_onednn(int, std::string_view) {}

#endif

}  // namespace switchback::floating
