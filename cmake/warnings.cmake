# SPDX-License-Identifier: Apache-2.0
# How every target of this project is compiled: language level, warnings, sanitizers, visibility.
function(switchback_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF C_STANDARD 11 C_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  # No contraction: q = round(127 · (x / absmax)) and the dequantize are exact sequences of roundings.
  set(_host $<COMPILE_LANGUAGE:C,CXX>)
  target_compile_options(${target} PRIVATE
    "$<${_host}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wcast-qual;-Wundef;-ffp-contract=off>"
    # The same for device code (CMake before 3.26 does not know that nvcc has C++20). No FMA, no flush to zero: they are nvcc's options for the above.
    "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-fmad=false;-ftz=false;-prec-div=true;-Xcompiler=-Wall,-Wextra,-ffp-contract=off;-Xptxas=-warn-spills>"
    # Code for every generation, of which a machine loads one: a quarter of the size.
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>"
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>
    # GCC 12 and 13 see overlapping copies inside std::string's operator+ where there are none.
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
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined
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

# Sources of a target that a build with SWITCHBACK_TOGETHER compiles as one: they spend their time on
# the same templates. A source for itself stays what every other build compiles, ci's among them (but
# for those of tests, group `tests`).
function(switchback_together target group)
  if(SWITCHBACK_TOGETHER OR (SWITCHBACK_QUICK_BUILD AND group STREQUAL "tests"))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()

# See SWITCHBACK_QUICK_BUILD.
function(switchback_less_optimised_if_quick target)
  if(SWITCHBACK_QUICK_BUILD)
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# For programs and tests around the library, most of whose compile time goes into libraries of
# templates: the sanitizers see the same without the optimiser, which takes half of that time, and
# AddressSanitizer sees the wild pointers that UndefinedBehaviorSanitizer would look for at every `->`
# of those templates. Arithmetic, shifts, casts and bounds stay checked.
function(switchback_unoptimised_if_sanitized target)
  if(NOT SWITCHBACK_SANITIZER STREQUAL "none")
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(SWITCHBACK_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,vptr,object-size)
    target_compile_options(${target} PRIVATE
      -fno-sanitize=pointer-overflow,nonnull-attribute,returns-nonnull-attribute)
  endif()
  switchback_less_optimised_if_quick(${target})
endfunction()
