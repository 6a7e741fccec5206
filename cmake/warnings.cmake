# SPDX-License-Identifier: Apache-2.0
# The compiler settings of all targets: language level, warnings, sanitizers, visibility.
function(switchback_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF C_STANDARD 11 C_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  # No contraction of multiply and add: quantize, q = round(127 · (x / absmax)), and dequantize are
  # specified rounding by rounding, and a fused multiply-add would leave one out.
  set(_host $<COMPILE_LANGUAGE:C,CXX>)
  target_compile_options(${target} PRIVATE
    "$<${_host}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wcast-qual;-Wundef;-ffp-contract=off>"
    # Device code has no fused multiply-add either, and no flush to zero. (CMake before 3.26 does
    # not know that nvcc has C++20.)
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;-ftz=false;-prec-div=true;-Xcompiler=-Wall,-Wextra,-ffp-contract=off;-Xptxas=-warn-spills>"
    # The binary has code for every GPU generation, of which a machine loads one. Compression leaves
    # a quarter of the size.
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
    # GCC 12 and 13 warn, wrongly, of overlapping copies inside std::string's operator+.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)
  if(SWITCHBACK_WERROR)
    target_compile_options(${target} PRIVATE $<${_host}:-Werror>
      "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
  endif()
  if(SWITCHBACK_ASSERTIONS)
    target_compile_definitions(${target} PRIVATE SWITCHBACK_ASSERTIONS=1)
  endif()
  if(SWITCHBACK_FUZZ)
    target_compile_options(${target} PRIVATE $<${_host}:-fsanitize=fuzzer-no-link>)
  endif()
  if(SWITCHBACK_SANITIZER STREQUAL "address")
    # Without the checks of every pointer that is used: AddressSanitizer finds wild pointers, and
    # these checks take half of the time of the compiler and of the tests.
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined
      -fno-sanitize=null,object-size,pointer-overflow,vptr,nonnull-attribute,returns-nonnull-attribute
      -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
  elseif(SWITCHBACK_SANITIZER STREQUAL "thread")
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=thread)
  elseif(NOT SWITCHBACK_SANITIZER STREQUAL "none")
    message(FATAL_ERROR
      "SWITCHBACK_SANITIZER = ${SWITCHBACK_SANITIZER}; it must be none, address or thread")
  endif()
endfunction()

# switchback_together(TARGET GROUP file...): with SWITCHBACK_TOGETHER, these sources are compiled as
# one translation unit (a unity build); the group `tests` also in quick builds. Most of their
# compile time is spent on the same headers. Other builds compile each source separately.
function(switchback_together target group)
  if(SWITCHBACK_TOGETHER OR (SWITCHBACK_QUICK_BUILD AND group STREQUAL "tests"))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()

# switchback_together_by_folder(TARGET [APART regex]): calls switchback_together for the sources that
# the target has so far, with one group per folder. Generated sources, and those that match the regular
# expression, are compiled separately.
function(switchback_together_by_folder target)
  cmake_parse_arguments(_together "" "APART" "" ${ARGN})
  get_target_property(_sources ${target} SOURCES)
  foreach(_source IN LISTS _sources)
    get_filename_component(_folder "${_source}" DIRECTORY)
    if(NOT IS_ABSOLUTE "${_source}" AND NOT (_together_APART AND _source MATCHES "${_together_APART}"))
      string(MAKE_C_IDENTIFIER "of_${_folder}" _group)
      switchback_together(${target} ${_group} "${_source}")
    endif()
  endforeach()
endfunction()

# Compiles the target with less optimisation in quick builds (SWITCHBACK_QUICK_BUILD).
function(switchback_less_optimised_if_quick target)
  if(SWITCHBACK_QUICK_BUILD)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# Compiles programs and tests of sanitized builds without optimisation. Most of their compile time
# is spent on template libraries, half of it on optimising them, and sanitizers find the same bugs
# without optimisation. Arithmetic, shifts, casts and bounds are still checked.
function(switchback_unoptimised_if_sanitized target)
  if(NOT SWITCHBACK_SANITIZER STREQUAL "none")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(SWITCHBACK_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
  endif()
  switchback_less_optimised_if_quick(${target})
endfunction()
