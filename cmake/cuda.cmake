# SPDX-License-Identifier: Apache-2.0
# The CUDA backend: built if a toolkit is found (SWITCHBACK_CUDA = AUTO), required (ON) or left out
# (OFF). The runtime is linked statically and looks for the driver on first use; cuBLASLt is loaded then
# too. So one build runs on machines with and without a GPU.
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
  # Versions between these and newer ones use the PTX of 90. Turing is the first with int8 tensor cores.
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

# switchback_cuda_sources(TARGET [LIST name] JOINED_IN file... [REAL_ONLY file...] SOURCES file...): adds
# SOURCES to a layer if there is a toolkit, and always to the list that is compiled for the emulated
# device, a global property (default: SWITCHBACK_CUDA_SOURCES, of the library). REAL_ONLY files are not,
# because the emulated device has its own. JOINED_IN names the files of the layer that refer to the
# backend: only these are compiled with SWITCHBACK_HAVE_CUDA.
function(switchback_cuda_sources target)
  cmake_parse_arguments(_cuda "" "LIST" "JOINED_IN;REAL_ONLY;SOURCES" ${ARGN})
  if(NOT _cuda_LIST)
    set(_cuda_LIST SWITCHBACK_CUDA_SOURCES)
  endif()
  foreach(source IN LISTS _cuda_SOURCES)
    set_property(GLOBAL APPEND PROPERTY ${_cuda_LIST} "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  endforeach()
  if(SWITCHBACK_HAVE_CUDA)
    target_sources(${target} PRIVATE ${_cuda_SOURCES} ${_cuda_REAL_ONLY})
    # For these files alone: the others are compiled as in a build without the backend.
    set_source_files_properties(${_cuda_JOINED_IN} PROPERTIES
      COMPILE_DEFINITIONS SWITCHBACK_HAVE_CUDA=1)
    set(_host ${_cuda_SOURCES} ${_cuda_REAL_ONLY})
    list(FILTER _host INCLUDE REGEX "\\.cpp$")
    foreach(directory IN LISTS CUDAToolkit_INCLUDE_DIRS)
      set_property(SOURCE ${_host} APPEND PROPERTY COMPILE_OPTIONS "-isystem${directory}")
    endforeach()
  endif()
endfunction()
