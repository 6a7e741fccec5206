# SPDX-License-Identifier: Apache-2.0
# Collects everything for a machine that has only a driver: programs, the libraries they depend on
# except the system's, grids, tuned configurations, gpu-check. Called by the target `bundle` with PROGRAMS,
# BUILD and SOURCE_DIR (folders), GENERATIONS (how many the kernels are compiled for), XZ, and STRIP, which
# may be empty.
if(NOT XZ)
  message(FATAL_ERROR "a bundle is packed by xz, which was not found: install it, or set SWITCHBACK_XZ")
endif()
set(OUTPUT "${BUILD}/switchback-bundle")
file(REMOVE_RECURSE "${OUTPUT}")
file(MAKE_DIRECTORY "${OUTPUT}/bin" "${OUTPUT}/lib" "${OUTPUT}/data" "${OUTPUT}/share/switchback")
file(COPY ${PROGRAMS} DESTINATION "${OUTPUT}/bin")
file(GLOB _copies "${OUTPUT}/bin/*")
if(STRIP)
  execute_process(COMMAND "${STRIP}" ${_copies} COMMAND_ERROR_IS_FATAL ANY)
endif()
file(COPY "${SOURCE_DIR}/data/grids" DESTINATION "${OUTPUT}/data")
file(COPY "${SOURCE_DIR}/data/configs" DESTINATION "${OUTPUT}/share/switchback")
file(COPY "${SOURCE_DIR}/tools/gpu-check" "${SOURCE_DIR}/LICENSE" DESTINATION "${OUTPUT}")

# The C library and the loader are not bundled: they come from the target machine.
set(_of_the_system "^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread)\\.so.*)$")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAMS} RESOLVED_DEPENDENCIES_VAR _libraries
  UNRESOLVED_DEPENDENCIES_VAR _missing PRE_EXCLUDE_REGEXES "${_of_the_system}")
if(_missing)
  message(FATAL_ERROR "not found: ${_missing}")
endif()
foreach(_library IN LISTS _libraries)
  file(COPY "${_library}" DESTINATION "${OUTPUT}/lib" FOLLOW_SYMLINK_CHAIN)
endforeach()

# The bundle must be complete: the loader finds every library of the programs in it, and no file names the
# build folder.
foreach(_program IN LISTS _copies)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=LD_LIBRARY_PATH ldd "${_program}"
    OUTPUT_VARIABLE _lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^ \t\n]+ => [^\n]*" _lines "${_lines}")
  foreach(_line IN LISTS _lines)
    string(REGEX REPLACE " => .*" "" _name "${_line}")
    string(FIND "${_line}" " => ${OUTPUT}/" _inside)
    if(_inside LESS 0 AND NOT _name MATCHES "${_of_the_system}")
      message(FATAL_ERROR "${_program} takes a library that is not in the bundle: ${_line}")
    endif()
  endforeach()
endforeach()
execute_process(COMMAND grep -rlF "${BUILD}" "${OUTPUT}" OUTPUT_VARIABLE _files RESULT_VARIABLE _status)
if(NOT _status EQUAL 1)
  message(FATAL_ERROR "the build folder ${BUILD} is named in:\n${_files}")
endif()

# All programs contain the same library. A compression window longer than a program stores it only once.
execute_process(COMMAND "${CMAKE_COMMAND}" -E tar cf "${OUTPUT}.tar" switchback-bundle
  WORKING_DIRECTORY "${BUILD}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${XZ}" -f -T1 --lzma2=preset=2,dict=256MiB "${OUTPUT}.tar" COMMAND_ERROR_IS_FATAL ANY)
file(SIZE "${OUTPUT}.tar.xz" _size)
math(EXPR _mib "(${_size} + 1048575) / 1048576")
if(GENERATIONS LESS 1)
  set(GENERATIONS 1)
endif()
math(EXPR _most "30 * ${GENERATIONS}")
if(_mib GREATER _most)
  message(FATAL_ERROR "${OUTPUT}.tar.xz: ${_mib} MiB; for ${GENERATIONS} generations it may have ${_most}")
endif()
message(STATUS "bundle: ${OUTPUT}.tar.xz, ${_mib} MiB")
