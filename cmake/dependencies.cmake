# SPDX-License-Identifier: Apache-2.0
# Third-party packages: the system's where there are any, FetchContent where there are none.
# Each is looked for only if something that needs it is built.
include(FetchContent)
find_package(Threads REQUIRED)

# switchback_package(NAME TARGET target GIT url TAG tag [VERSION v])
# Makes `target` exist: by find_package(NAME), else by fetching the source.
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

# Highway's packages carry a pkg-config file, newer ones a CMake config too.
find_package(hwy QUIET CONFIG)
if(NOT TARGET hwy::hwy)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(hwy QUIET IMPORTED_TARGET libhwy>=1.0.0)
  endif()
  if(TARGET PkgConfig::hwy)
    add_library(hwy::hwy ALIAS PkgConfig::hwy)
  else()
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
endif()

if(SWITCHBACK_OPENMP)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "OpenMP: not found, using the own thread pool")
  endif()
endif()

# oneDNN: a CMake config that the user points at, else header and library as a system installs them,
# else any config. Not the config first: that of some distributions demands OpenCL, with an error even
# for an optional search, although nothing here includes oneDNN's OpenCL headers.
set(SWITCHBACK_HAVE_ONEDNN OFF)
if(SWITCHBACK_ONEDNN)
  if(NOT dnnl_DIR AND NOT DNNL_DIR AND NOT oneDNN_DIR)
    find_path(SWITCHBACK_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
    find_library(SWITCHBACK_ONEDNN_LIBRARY dnnl)
  endif()
  if(SWITCHBACK_ONEDNN_INCLUDE AND SWITCHBACK_ONEDNN_LIBRARY)
    if(NOT TARGET DNNL::dnnl)
      add_library(DNNL::dnnl UNKNOWN IMPORTED)
      set_target_properties(DNNL::dnnl PROPERTIES
        IMPORTED_LOCATION "${SWITCHBACK_ONEDNN_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${SWITCHBACK_ONEDNN_INCLUDE}")
    endif()
  else()
    find_package(dnnl QUIET CONFIG NAMES dnnl DNNL oneDNN)
    if(TARGET oneDNN::dnnl AND NOT TARGET DNNL::dnnl)
      add_library(DNNL::dnnl ALIAS oneDNN::dnnl)
    endif()
  endif()
  if(TARGET DNNL::dnnl)
    set(SWITCHBACK_HAVE_ONEDNN ON)
  else()
    message(STATUS "oneDNN: not found, its engines are left out")
  endif()
endif()

# OpenBLAS through cblas.h. The OpenMP build is preferred: it shares its threads with everything else.
set(SWITCHBACK_HAVE_OPENBLAS OFF)
if(SWITCHBACK_OPENBLAS)
  find_path(SWITCHBACK_CBLAS_INCLUDE cblas.h
            PATH_SUFFIXES openblas-openmp openblas-pthread openblas
                          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp
                          ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
  find_library(SWITCHBACK_OPENBLAS_LIBRARY openblas
               PATH_SUFFIXES openblas-openmp openblas-pthread)
  if(SWITCHBACK_CBLAS_INCLUDE AND SWITCHBACK_OPENBLAS_LIBRARY)
    set(SWITCHBACK_HAVE_OPENBLAS ON)
    add_library(switchback_openblas INTERFACE)
    target_include_directories(switchback_openblas SYSTEM INTERFACE ${SWITCHBACK_CBLAS_INCLUDE})
    target_link_libraries(switchback_openblas INTERFACE ${SWITCHBACK_OPENBLAS_LIBRARY})
  else()
    message(STATUS "OpenBLAS: not found, its engine is left out")
  endif()
endif()

# Headers alone: the tuner's cache and the program's records are written with it.
set(JSON_Install OFF)
switchback_package(nlohmann_json TARGET nlohmann_json::nlohmann_json
                   GIT https://github.com/nlohmann/json TAG v3.11.2)

if(SWITCHBACK_BENCH)
  # Before 0.8 the package's target has no namespace.
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
