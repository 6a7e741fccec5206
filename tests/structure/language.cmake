# SPDX-License-Identifier: Apache-2.0
# cmake -D CXX=… -D SOURCE_DIR=… -P language.cmake: if the language is older than C++20, the first error of every C++
# header says so.
file(GLOB _headers RELATIVE "${SOURCE_DIR}/include" "${SOURCE_DIR}/include/switchback/*.hpp")
list(LENGTH _headers _count)
if(_count LESS 10)
  message(FATAL_ERROR "${SOURCE_DIR}/include has ${_count} C++ headers")
endif()
foreach(_header IN LISTS _headers)
  execute_process(COMMAND "${CXX}" -std=c++17 -fsyntax-only -x c++ "-I${SOURCE_DIR}/include"
                          "${SOURCE_DIR}/include/${_header}"
    RESULT_VARIABLE _result ERROR_VARIABLE _said OUTPUT_QUIET)
  string(REGEX MATCH "error:[^\n]*" _first "${_said}")
  if(_result EQUAL 0 OR NOT _first MATCHES "headers need C\\+\\+20")
    message(FATAL_ERROR "${_header} in C++17: ${_first}")
  endif()
endforeach()
