# SPDX-License-Identifier: Apache-2.0
# Build options. Those that matter only to developers of switchback are on if switchback is the
# top-level project.
if(CMAKE_SOURCE_DIR STREQUAL PROJECT_SOURCE_DIR)
  set(SWITCHBACK_TOP_LEVEL ON)
else()
  set(SWITCHBACK_TOP_LEVEL OFF)
endif()

option(SWITCHBACK_TESTS "Build the tests" ${SWITCHBACK_TOP_LEVEL})
option(SWITCHBACK_BENCH "Build switchback-bench" ${SWITCHBACK_TOP_LEVEL})
option(SWITCHBACK_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(SWITCHBACK_INSTALL "Make install rules and packages" ${SWITCHBACK_TOP_LEVEL})
option(SWITCHBACK_SHARED "Build libswitchback as a shared library" ON)
option(SWITCHBACK_OPENMP "Run on OpenMP threads, shared with oneDNN and OpenBLAS" ON)
option(SWITCHBACK_ONEDNN "Use oneDNN as int8 and floating point engine" ON)
option(SWITCHBACK_OPENBLAS "Use OpenBLAS as floating point engine" ON)
option(SWITCHBACK_ASSERTIONS "Check the engines' preconditions at run time" OFF)
option(SWITCHBACK_WERROR "Treat warnings as errors" OFF)
set(SWITCHBACK_SANITIZER "none" CACHE STRING "none, address (with undefined) or thread")
set_property(CACHE SWITCHBACK_SANITIZER PROPERTY STRINGS none address thread)

# Tests for a GPU are built with SWITCHBACK_TEST_DEVICE = cuda, and run by tools/gpu-check. With
# `none` tests run on the CPU alone.
set(SWITCHBACK_TEST_DEVICE "emulated" CACHE STRING "The device that tests link: emulated, cuda or none")
set_property(CACHE SWITCHBACK_TEST_DEVICE PROPERTY STRINGS emulated cuda none)

if(SWITCHBACK_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
endif()

# SWITCHBACK_QUICK_BUILD is for builds that are tested but never shipped: programs and tests are
# compiled with less optimisation, and the library links the compiled {fmt}. Such a build takes two
# thirds of the time.
option(SWITCHBACK_QUICK_BUILD "Optimise the library alone" OFF)
mark_as_advanced(SWITCHBACK_QUICK_BUILD)

# SWITCHBACK_TOGETHER makes unity builds: see switchback_together in cmake/warnings.cmake.
option(SWITCHBACK_TOGETHER "Compile groups of sources around the library as one" OFF)
mark_as_advanced(SWITCHBACK_TOGETHER)
