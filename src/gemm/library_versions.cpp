// SPDX-License-Identifier: Apache-2.0
#include "gemm/library_versions.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif
#if defined(SWITCHBACK_HAVE_OPENBLAS)
#include <cblas.h>
#endif

namespace switchback {

namespace {

#if defined(SWITCHBACK_HAVE_ONEDNN)

// The instruction set that oneDNN uses, by oneDNN's own numbers, which keep their meaning. A number
// that we do not know is printed in hexadecimal.
std::string isa_of_onednn() {
  const auto isa = dnnl_get_effective_cpu_isa();
  switch (static_cast<unsigned>(isa)) {
    case 0:  // dnnl_cpu_isa_all before oneDNN 3, dnnl_cpu_isa_default since
      return "all";
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("{:#x}", static_cast<unsigned>(isa));
  }
}

std::string_view runtime_of_onednn(unsigned runtime) {
  switch (runtime) {
    case DNNL_RUNTIME_NONE:
      return "none";
    case DNNL_RUNTIME_SEQ:
      return "sequential";
    case DNNL_RUNTIME_OMP:
      return "OpenMP";
    case DNNL_RUNTIME_TBB:
      return "TBB";
    case DNNL_RUNTIME_THREADPOOL:
      return "thread pool";
    default:
      return "other";
  }
}

#endif

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions(DeviceKind device) {
  std::vector<std::pair<std::string, std::string>> versions;
  // cuBLASLt is a large library, so it is loaded only if versions for a CUDA device are asked for.
  if (device == core::cuda::kind)
    versions.emplace_back("cuBLASLt", products::cuda::cublaslt_version());
#if defined(SWITCHBACK_HAVE_ONEDNN)
  const dnnl_version_t* v = dnnl_version();
  versions.emplace_back("oneDNN",
                        fmt::format("{}.{}.{} ({}) isa {} runtime {}", v->major, v->minor, v->patch,
                                    v->hash, isa_of_onednn(), runtime_of_onednn(v->cpu_runtime)));
#endif
#if defined(SWITCHBACK_HAVE_OPENBLAS)
  // openblas_get_parallel(): 0 sequential, 1 OpenBLAS's own threads, 2 OpenMP.
  const int parallel = openblas_get_parallel();
  versions.emplace_back("OpenBLAS", fmt::format("{} kernels {} threading {}", openblas_get_config(),
                                                openblas_get_corename(),
                                                parallel == 2   ? "OpenMP"
                                                : parallel == 1 ? "own threads"
                                                                : "none"));
#endif
  return versions;
}

}  // namespace switchback
