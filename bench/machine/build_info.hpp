// SPDX-License-Identifier: Apache-2.0
// Bench: what the build system knows about this build. Defined in a generated file
// (cmake/write_build_info.cmake), which changes only when its contents do.
#pragma once

namespace switchback::bench::build_info {

extern const char* const version;
extern const char* const commit;
extern const char* const build_type;
extern const char* const sanitizer;
extern const bool assertions;

}  // namespace switchback::bench::build_info
