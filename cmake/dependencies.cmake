# SPDX-License-Identifier: Apache-2.0
# Third-party packages: from the system if installed, otherwise by FetchContent. Each is searched
# only if something that needs it is built.
include(FetchContent)
find_package(Threads REQUIRED)

# switchback_package(NAME TARGET target GIT url TAG tag [VERSION v])
# Defines `target`: by find_package(NAME), else by fetching the source.
macro(switchback_package name)
  cmake_parse_arguments(_pkg "" "TARGET;GIT;TAG;VERSION" "" ${ARGN})
  find_package(${name} ${_pkg_VERSION} QUIET)
  if(NOT TARGET ${_pkg_TARGET})
    message(STATUS "${name}: no installed package, fetching ${_pkg_TAG}")
    FetchContent_Declare(${name} GIT_REPOSITORY ${_pkg_GIT} GIT_TAG ${_pkg_TAG} GIT_SHALLOW ON)
    FetchContent_MakeAvailable(${name})
  endif()
endmacro()

set(FMT_INSTALL OFF)
switchback_package(fmt TARGET fmt::fmt-header-only GIT https://github.com/fmtlib/fmt TAG 9.1.0)

include("${CMAKE_CURRENT_LIST_DIR}/backends.cmake")
if(NOT TARGET hwy::hwy)
  set(HWY_ENABLE_TESTS OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_INSTALL OFF)
  FetchContent_Declare(hwy GIT_REPOSITORY https://github.com/google/highway GIT_TAG 1.2.0
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(hwy)
  if(NOT TARGET hwy::hwy)
    add_library(hwy::hwy ALIAS hwy)
  endif()
endif()

# nlohmann_json is header-only. It writes the tuner's cache and the program's records.
set(JSON_Install OFF)
switchback_package(nlohmann_json TARGET nlohmann_json::nlohmann_json
                   GIT https://github.com/nlohmann/json TAG v3.11.2)

if(SWITCHBACK_BENCH)
  # Before 0.8 the target of the package yaml-cpp has no namespace.
  find_package(yaml-cpp QUIET)
  if(TARGET yaml-cpp AND NOT TARGET yaml-cpp::yaml-cpp)
    add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
  endif()
  switchback_package(yaml-cpp TARGET yaml-cpp::yaml-cpp GIT https://github.com/jbeder/yaml-cpp
                     TAG 0.8.0)
  switchback_package(CLI11 TARGET CLI11::CLI11 GIT https://github.com/CLIUtils/CLI11 TAG v2.3.2)
endif()
if(SWITCHBACK_TESTS)
  set(INSTALL_GTEST OFF)
  switchback_package(GTest TARGET GTest::gtest GIT https://github.com/google/googletest
                     TAG release-1.12.1)
endif()
