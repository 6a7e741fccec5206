// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/status.hpp"

namespace switchback::bench {

std::string_view status_text(CaseStatus status) noexcept {
  switch (status) {
    case CaseStatus::ok:
      return "ok";
    case CaseStatus::skipped:
      return "skipped";
    case CaseStatus::wrong:
      return "wrong";
    case CaseStatus::unsupported:
      return "unsupported";
    case CaseStatus::oom:
      return "oom";
    case CaseStatus::timeout:
      return "timeout";
  }
  return "unknown";
}

}  // namespace switchback::bench
