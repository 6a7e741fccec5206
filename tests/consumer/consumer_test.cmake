# SPDX-License-Identifier: Apache-2.0
# Installs a build into an empty prefix, moves that prefix, and builds a C++ and a C program that
# find the library there, by find_package and by pkg-config. Then checks the archives that CPack
# makes. Called with BUILD, SOURCE (tests/consumer), PROJECT (the source tree), WORK (a folder that
# this script removes), GENERATOR, C, CXX, LIBDIR, PKG_CONFIG (may be empty).
include("${CMAKE_CURRENT_LIST_DIR}/readme_blocks.cmake")

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE _status OUTPUT_VARIABLE _out ERROR_VARIABLE _out)
  if(NOT _status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${_status}): ${ARGN}\n${_out}")
  endif()
  set(output "${_out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{SWITCHBACK_TUNE} off)
run("installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/first")
file(RENAME "${WORK}/first" "${WORK}/moved")
set(prefix "${WORK}/moved")

# No CMake or pkg-config file of the package contains the folder where it was built or first
# installed.
file(GLOB_RECURSE _texts "${prefix}/*.cmake" "${prefix}/*.pc")
if(NOT _texts)
  message(FATAL_ERROR "no package files below ${prefix}")
endif()
foreach(_text IN LISTS _texts)
  file(READ "${_text}" _content)
  foreach(_place "${BUILD}" "${WORK}/first")
    string(FIND "${_content}" "${_place}" _found)
    if(NOT _found EQUAL -1)
      message(FATAL_ERROR "${_text} names ${_place}")
    endif()
  endforeach()
endforeach()
foreach(_file include/switchback/switchback.h include/switchback/linear.hpp
              share/switchback/configs bin/switchback-bench share/doc/switchback/README.md
              share/doc/switchback/docs/library.md share/doc/switchback/examples/digits.csv)
  if(NOT EXISTS "${prefix}/${_file}")
    message(FATAL_ERROR "${_file} was not installed")
  endif()
endforeach()

file(GLOB _helpers "${prefix}/lib*/switchback/switchback-validate" "${prefix}/lib/*/switchback/switchback-validate")
if(NOT _helpers)
  message(FATAL_ERROR "switchback-validate was not installed")
endif()
list(GET _helpers 0 _helper)
# The helper program switchback-validate says that it is not meant to be run by hand, and answers a
# caller that asks as a tuner does.
execute_process(COMMAND "${_helper}" RESULT_VARIABLE _status ERROR_VARIABLE _out)
if(NOT _status EQUAL 2 OR NOT _out MATCHES "a helper program that libswitchback's tuner starts")
  message(FATAL_ERROR "${_helper} ended with ${_status}:\n${_out}")
endif()
file(GLOB _library "${prefix}/lib*/libswitchback.so" "${prefix}/lib/*/libswitchback.so")
file(WRITE "${WORK}/request" "validate cpu,1,,\n")
execute_process(COMMAND "${_helper}" --tuner ${_library} INPUT_FILE "${WORK}/request"
                OUTPUT_VARIABLE _out RESULT_VARIABLE _status)
if(NOT _status EQUAL 0 OR NOT _out MATCHES "^ready ")
  message(FATAL_ERROR "${_helper} --tuner ${_library} ended with ${_status}:\n${_out}")
endif()

run("configuring with find_package" "${CMAKE_COMMAND}" -S "${SOURCE}/package" -B "${WORK}/package"
    -G "${GENERATOR}" "-DCMAKE_C_COMPILER=${C}" "-DCMAKE_CXX_COMPILER=${CXX}"
    "-DCMAKE_PREFIX_PATH=${prefix}" -DCMAKE_BUILD_TYPE=Release)
string(FIND "${output}" "in ${prefix}/" _found)
if(_found EQUAL -1)
  message(FATAL_ERROR "another package than that in ${prefix} was found:\n${output}")
endif()
run("building with find_package" "${CMAKE_COMMAND}" --build "${WORK}/package")
run("the C++ program" "${WORK}/package/consumer_cpp")
message(STATUS "${output}")
run("the C program" "${WORK}/package/consumer_c")
message(STATUS "${output}")
run("configuring the installed examples" "${CMAKE_COMMAND}"
    -S "${prefix}/share/doc/switchback/examples" -B "${WORK}/examples" -G "${GENERATOR}"
    "-DCMAKE_C_COMPILER=${C}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_PREFIX_PATH=${prefix}")
run("building the installed examples" "${CMAKE_COMMAND}" --build "${WORK}/examples")
run("the installed switchback-bench" "${prefix}/bin/switchback-bench" list grids)

if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
  run("pkg-config" "${PKG_CONFIG}" --cflags --libs "switchback >= 0.1")
  separate_arguments(_flags UNIX_COMMAND "${output}")
  run("compiling with pkg-config" "${C}" "${SOURCE}/package/consumer.c" -o "${WORK}/pc" ${_flags})
  set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
  run("the program of pkg-config" "${WORK}/pc")
  message(STATUS "${output}")
  # The programs of the README and of docs/, word for word, compiled as the README says.
  file(GLOB _pages "${PROJECT}/docs/*.md")
  foreach(_language cpp c)
    readme_blocks("${PROJECT}/README.md" ${_language} _blocks)
    if(NOT _blocks)
      message(FATAL_ERROR "the README shows no program in ${_language}")
    endif()
    foreach(_page IN LISTS _pages)
      readme_blocks("${_page}" ${_language} _more)
      list(APPEND _blocks ${_more})
    endforeach()
    foreach(_block IN LISTS _blocks)
      readme_program("${_block}" _program)
      file(WRITE "${WORK}/readme.${_language}" "${_program}")
      if(_language STREQUAL "c")
        set(_compiler "${C}" -std=c11)
      else()
        set(_compiler "${CXX}" -std=c++20)
      endif()
      run("compiling this program of the README or docs:\n${_program}" ${_compiler} -Wall -Wextra
          -Werror "${WORK}/readme.${_language}" -o "${WORK}/readme" ${_flags})
      run("this program of the README or docs:\n${_program}" "${WORK}/readme")
    endforeach()
  endforeach()
  unset(ENV{LD_LIBRARY_PATH})
endif()

# The CPack archive holds the same files as the installation prefix, below one folder.
run("cpack" "${CMAKE_COMMAND}" -E chdir "${BUILD}" cpack -B "${WORK}/archives")
file(GLOB _archives "${WORK}/archives/*.tar.gz")
list(LENGTH _archives _count)
if(NOT _count EQUAL 1)
  message(FATAL_ERROR "cpack made ${_count} archives: ${_archives}")
endif()
file(ARCHIVE_EXTRACT INPUT "${_archives}" DESTINATION "${WORK}/unpacked")
file(GLOB _top "${WORK}/unpacked/*")
file(GLOB_RECURSE _in_archive RELATIVE "${_top}" "${_top}/*")
file(GLOB_RECURSE _in_prefix RELATIVE "${prefix}" "${prefix}/*")
if(NOT _in_archive STREQUAL _in_prefix)
  message(FATAL_ERROR "the archive holds\n${_in_archive}\nthe prefix\n${_in_prefix}")
endif()
# Where the tools for them exist, CPack also makes Debian packages: one for each component, which
# together hold all files of the prefix.
file(GLOB _debs "${WORK}/archives/*.deb")
if(_debs)
  foreach(_deb IN LISTS _debs)
    run("dpkg-deb" dpkg-deb -x "${_deb}" "${WORK}/debian")
  endforeach()
  file(GLOB_RECURSE _in_debs RELATIVE "${WORK}/debian/usr" "${WORK}/debian/usr/*")
  if(NOT _in_debs STREQUAL _in_prefix)
    message(FATAL_ERROR "the Debian packages hold\n${_in_debs}\nthe prefix\n${_in_prefix}")
  endif()
endif()
file(REMOVE_RECURSE "${WORK}")
