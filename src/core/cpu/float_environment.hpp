// SPDX-License-Identifier: Apache-2.0
// Core: the floating point environment for which the library's results are specified.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace switchback::core {

/// Sets the default floating-point environment for a scope: a caller's flush-to-zero or rounding
/// mode would change codes and scales.
class DefaultFloatEnvironment {
 public:
#if defined(__SSE__)
  DefaultFloatEnvironment() noexcept : saved_(_mm_getcsr()) {
    _mm_setcsr(0x1F80);
  }
  ~DefaultFloatEnvironment() {
    _mm_setcsr(saved_);
  }
#else
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() {
    std::fesetenv(&saved_);
  }
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__SSE__)
  unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace switchback::core
