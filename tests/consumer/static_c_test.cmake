# SPDX-License-Identifier: Apache-2.0
# The package of a static switchback reports that a project without C++ has to enable it. A CMake script
# has no language at all, so it stands for a project in C only. Called with SOURCE (the project) and WORK
# (a folder).
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(PACKAGE_INIT "")
set(SWITCHBACK_SHARED OFF)
configure_file("${SOURCE}/cmake/switchback-config.cmake.in" "${WORK}/switchback-config.cmake" @ONLY)
find_package(switchback QUIET CONFIG PATHS "${WORK}" NO_DEFAULT_PATH)
if(switchback_FOUND OR NOT switchback_NOT_FOUND_MESSAGE MATCHES "LANGUAGES C CXX")
  message(FATAL_ERROR "found: ${switchback_FOUND}, message: ${switchback_NOT_FOUND_MESSAGE}")
endif()
file(REMOVE_RECURSE "${WORK}")
