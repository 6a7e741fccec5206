# SPDX-License-Identifier: Apache-2.0
# Collects what a machine with nothing but a driver needs: programs, the libraries they depend on
# except the system's, grids, gpu-check. Called by the target `bundle` with PROGRAMS, OUTPUT (a
# folder), SOURCE_DIR, and STRIP, which may be empty.
file(REMOVE_RECURSE "${OUTPUT}")
file(MAKE_DIRECTORY "${OUTPUT}/bin" "${OUTPUT}/lib" "${OUTPUT}/data")
file(COPY ${PROGRAMS} DESTINATION "${OUTPUT}/bin")
if(STRIP)
  file(GLOB _copies "${OUTPUT}/bin/*")
  execute_process(COMMAND "${STRIP}" ${_copies} COMMAND_ERROR_IS_FATAL ANY)
endif()
file(COPY "${SOURCE_DIR}/data/grids" DESTINATION "${OUTPUT}/data")
file(COPY "${SOURCE_DIR}/tools/gpu-check" "${SOURCE_DIR}/LICENSE" DESTINATION "${OUTPUT}")
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAMS} RESOLVED_DEPENDENCIES_VAR _libraries
  UNRESOLVED_DEPENDENCIES_VAR _missing
  # The C library and the loader come from the target machine.
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread)\\.so" "^linux-vdso")
if(_missing)
  message(FATAL_ERROR "not found: ${_missing}")
endif()
foreach(_library IN LISTS _libraries)
  file(COPY "${_library}" DESTINATION "${OUTPUT}/lib" FOLLOW_SYMLINK_CHAIN)
endforeach()
get_filename_component(_parent "${OUTPUT}" DIRECTORY)
get_filename_component(_name "${OUTPUT}" NAME)
execute_process(COMMAND "${CMAKE_COMMAND}" -E tar czf "${OUTPUT}.tar.gz" "${_name}"
  WORKING_DIRECTORY "${_parent}" COMMAND_ERROR_IS_FATAL ANY)
file(SIZE "${OUTPUT}.tar.gz" _size)
math(EXPR _mib "(${_size} + 1048575) / 1048576")
message(STATUS "bundle: ${OUTPUT}.tar.gz, ${_mib} MiB")
