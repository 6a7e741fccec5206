// SPDX-License-Identifier: Apache-2.0
// Bench: information about this build from the build system. The variables are defined in a
// generated file (cmake/write_build_info.cmake), which is rewritten only when its contents change.
#pragma once

namespace switchback::bench::build_info {

extern const char* const version;
extern const char* const commit;
extern const char* const build_type;
extern const char* const sanitizer;
extern const bool assertions;

}  // namespace switchback::bench::build_info
