# SPDX-License-Identifier: Apache-2.0
# The CUDA backend: built if a toolkit is found (SWITCHBACK_CUDA = AUTO), required (ON) or left out
# (OFF). The runtime is linked statically and looks for the driver on first use, when cuBLASLt is
# also loaded. So one build runs on machines with and without a GPU.
set(SWITCHBACK_CUDA AUTO CACHE STRING "AUTO (if there is a toolkit), ON or OFF")
set_property(CACHE SWITCHBACK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SWITCHBACK_CUDA_ARCHITECTURES "" CACHE STRING
  "In the form of CMAKE_CUDA_ARCHITECTURES; empty: every generation the toolkit knows")

set(SWITCHBACK_HAVE_CUDA OFF)
if(NOT SWITCHBACK_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(ENV{CUDACXX} /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12.0 QUIET)
    if(CUDAToolkit_FOUND)
      set(SWITCHBACK_HAVE_CUDA ON)
    else()
      message(STATUS "CUDA: the toolkit is older than 12.0, which the backend needs for C++20")
    endif()
  endif()
  if(SWITCHBACK_CUDA STREQUAL "ON" AND NOT SWITCHBACK_HAVE_CUDA)
    message(FATAL_ERROR "SWITCHBACK_CUDA = ON, but no CUDA toolkit of version 12.0 or later was found")
  endif()
endif()

if(SWITCHBACK_HAVE_CUDA)
  # Code for a major version runs on all of its minor versions (sm_80 on 86 and 89, sm_120 on 121).
  # Versions between these, and newer ones, use the PTX of 90. Turing is the first architecture with
  # int8 tensor cores.
  if(SWITCHBACK_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${SWITCHBACK_CUDA_ARCHITECTURES})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120-real)
    endif()
  endif()
  message(STATUS "CUDA: toolkit ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  message(STATUS "CUDA: not built")
endif()

# switchback_cuda_sources(LAYER [WITHOUT file] [REAL_ONLY file...] SOURCES file...): the files of a
# layer that are compiled against CUDA. With a toolkit they become the object library LAYER_cuda.
# Without a toolkit the file WITHOUT becomes that library; it defines the same entry points. For
# tests, SOURCES are also compiled against the emulated device, which has its own files instead of
# REAL_ONLY. A program links a layer's objects of one of the two, never of both.
function(switchback_cuda_sources layer)
  cmake_parse_arguments(_cuda "" "WITHOUT" "REAL_ONLY;SOURCES" ${ARGN})
  foreach(source IN LISTS _cuda_SOURCES)
    set_property(GLOBAL APPEND PROPERTY SWITCHBACK_CUDA_SOURCES_${layer} "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  endforeach()
  set(_sources ${_cuda_WITHOUT})
  if(SWITCHBACK_HAVE_CUDA)
    set(_sources ${_cuda_SOURCES} ${_cuda_REAL_ONLY})
    set(_host ${_sources})
    list(FILTER _host INCLUDE REGEX "\\.cpp$")
    foreach(directory IN LISTS CUDAToolkit_INCLUDE_DIRS)
      set_property(SOURCE ${_host} APPEND PROPERTY COMPILE_OPTIONS "-isystem${directory}")
    endforeach()
  endif()
  add_library(${layer}_cuda OBJECT ${_sources})
  switchback_target_defaults(${layer}_cuda)
  target_link_libraries(${layer}_cuda PRIVATE ${layer})
  set_property(GLOBAL APPEND PROPERTY SWITCHBACK_BACKEND ${layer}_cuda)
endfunction()
