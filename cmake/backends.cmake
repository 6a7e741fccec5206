# SPDX-License-Identifier: Apache-2.0
# The libraries that the engines use, as the system provides them: hwy::hwy, OpenMP::OpenMP_CXX,
# DNNL::dnnl, switchback_openblas. Included by the build. A static library needs them too, so this
# file is installed next to its package. Reads SWITCHBACK_OPENMP, _ONEDNN, _OPENBLAS; sets
# SWITCHBACK_HAVE_ONEDNN and _OPENBLAS.

# Highway's packages have a pkg-config file. Newer ones also have a CMake config.
find_package(hwy QUIET CONFIG)
if(NOT TARGET hwy::hwy)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(hwy QUIET IMPORTED_TARGET libhwy>=1.0.0)
  endif()
  if(TARGET PkgConfig::hwy)
    add_library(hwy::hwy ALIAS PkgConfig::hwy)
  endif()
endif()

if(SWITCHBACK_OPENMP)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "OpenMP: not found, using the own thread pool")
  endif()
endif()

# oneDNN is searched in this order: SWITCHBACK_ONEDNN_DIR; a CMake config that the user points to;
# header and library in the system's folders; any CMake config. The config is not searched first,
# because that of some distributions requires OpenCL and fails even in an optional search, although
# nothing here includes oneDNN's OpenCL headers.
set(SWITCHBACK_ONEDNN_DIR "" CACHE PATH
    "Prefix of the oneDNN to use (holds include/oneapi/dnnl/dnnl.hpp); empty: what is found")
set(SWITCHBACK_HAVE_ONEDNN OFF)
if(SWITCHBACK_ONEDNN)
  if(NOT SWITCHBACK_ONEDNN_DIR STREQUAL "$CACHE{SWITCHBACK_ONEDNN_DIR_BEFORE}")
    unset(SWITCHBACK_ONEDNN_INCLUDE CACHE)
    unset(SWITCHBACK_ONEDNN_LIBRARY CACHE)
  endif()
  set(SWITCHBACK_ONEDNN_DIR_BEFORE "${SWITCHBACK_ONEDNN_DIR}" CACHE INTERNAL "")
  if(SWITCHBACK_ONEDNN_DIR)
    find_path(SWITCHBACK_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp
              PATHS "${SWITCHBACK_ONEDNN_DIR}/include" NO_DEFAULT_PATH)
    find_library(SWITCHBACK_ONEDNN_LIBRARY dnnl
                 PATHS "${SWITCHBACK_ONEDNN_DIR}" PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
    if(NOT SWITCHBACK_ONEDNN_INCLUDE OR NOT SWITCHBACK_ONEDNN_LIBRARY)
      message(FATAL_ERROR "SWITCHBACK_ONEDNN_DIR = ${SWITCHBACK_ONEDNN_DIR} does not hold "
                          "include/oneapi/dnnl/dnnl.hpp and lib/libdnnl.so")
    endif()
  elseif(NOT dnnl_DIR AND NOT DNNL_DIR AND NOT oneDNN_DIR)
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

# OpenBLAS is called through cblas.h. Its OpenMP build is preferred, because it shares threads with
# this library.
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
    if(NOT TARGET switchback_openblas)
      add_library(switchback_openblas INTERFACE IMPORTED)
      target_include_directories(switchback_openblas INTERFACE ${SWITCHBACK_CBLAS_INCLUDE})
      target_link_libraries(switchback_openblas INTERFACE ${SWITCHBACK_OPENBLAS_LIBRARY})
    endif()
  else()
    message(STATUS "OpenBLAS: not found, its engine is left out")
  endif()
endif()
