# SPDX-License-Identifier: Apache-2.0
# CUTLASS, whose headers the fused products of the CUDA backend use: used if found
# (SWITCHBACK_CUTLASS = AUTO), required (ON), left out (OFF), or used only by tests that compile the
# kernels for the emulated device (HEADERS). It is searched in SWITCHBACK_CUTLASS_DIR (a checkout or
# a folder that contains include/cutlass), as a CMake package, and in the Python package
# nvidia-cutlass. Its kernels take minutes to compile.
set(SWITCHBACK_CUTLASS AUTO CACHE STRING "AUTO (if it is found), ON, OFF or HEADERS (for tests alone)")
set_property(CACHE SWITCHBACK_CUTLASS PROPERTY STRINGS AUTO ON OFF HEADERS)
set(SWITCHBACK_CUTLASS_DIR "" CACHE PATH "Where CUTLASS lies: holds include/cutlass/cutlass.h")

# The oldest version of CUTLASS that the kernels are compiled with. The collective builders of other
# versions differ.
set(SWITCHBACK_CUTLASS_OLDEST 4.2.0)
set(SWITCHBACK_HAVE_CUTLASS OFF)
set(SWITCHBACK_CUTLASS_INCLUDE "")
if(SWITCHBACK_CUTLASS STREQUAL "ON" AND NOT SWITCHBACK_HAVE_CUDA)
  message(FATAL_ERROR "SWITCHBACK_CUTLASS = ON, but this build has no CUDA backend (SWITCHBACK_CUDA)")
endif()
if(SWITCHBACK_HAVE_CUDA AND NOT SWITCHBACK_CUTLASS STREQUAL "OFF")
  set(_places "")
  if(SWITCHBACK_CUTLASS_DIR)
    set(_places "${SWITCHBACK_CUTLASS_DIR}/include" "${SWITCHBACK_CUTLASS_DIR}")
  else()
    find_package(NvidiaCutlass CONFIG QUIET)
    if(TARGET nvidia::cutlass::cutlass)
      get_target_property(_places nvidia::cutlass::cutlass INTERFACE_INCLUDE_DIRECTORIES)
    endif()
    find_program(_cutlass_python NAMES python3 NO_CACHE)
    if(_cutlass_python)
      execute_process(COMMAND "${_cutlass_python}" -c
        "import importlib.util as u; print(u.find_spec('cutlass_library').submodule_search_locations[0])"
        OUTPUT_VARIABLE _package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(_package)
        list(APPEND _places "${_package}/source/include")
      endif()
    endif()
  endif()
  foreach(_place IN LISTS _places)
    if(NOT SWITCHBACK_CUTLASS_INCLUDE AND EXISTS "${_place}/cutlass/version.h")
      file(STRINGS "${_place}/cutlass/version.h" _lines REGEX "define CUTLASS_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
             SWITCHBACK_CUTLASS_VERSION "${_lines}")
      if(SWITCHBACK_CUTLASS_VERSION VERSION_GREATER_EQUAL SWITCHBACK_CUTLASS_OLDEST)
        set(SWITCHBACK_CUTLASS_INCLUDE "${_place}")
        set(SWITCHBACK_HAVE_CUTLASS ON)
      else()
        message(STATUS "CUTLASS: ${_place} holds ${SWITCHBACK_CUTLASS_VERSION}, which is older than "
                       "${SWITCHBACK_CUTLASS_OLDEST}")
      endif()
    endif()
  endforeach()
  if(SWITCHBACK_HAVE_CUTLASS)
    message(STATUS "CUTLASS: ${SWITCHBACK_CUTLASS_VERSION} in ${SWITCHBACK_CUTLASS_INCLUDE}")
  elseif(NOT SWITCHBACK_CUTLASS STREQUAL "AUTO")
    message(FATAL_ERROR "SWITCHBACK_CUTLASS = ${SWITCHBACK_CUTLASS}, but CUTLASS ${SWITCHBACK_CUTLASS_OLDEST} or later was "
                        "not found; SWITCHBACK_CUTLASS_DIR says where it lies")
  else()
    message(STATUS "CUTLASS: not found, the fused engine is left out")
  endif()
  if(SWITCHBACK_CUTLASS STREQUAL "HEADERS")
    set(SWITCHBACK_HAVE_CUTLASS OFF)
  endif()
endif()
