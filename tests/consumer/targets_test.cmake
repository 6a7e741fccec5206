# SPDX-License-Identifier: Apache-2.0
# A build of switchback-bench alone, as ./tools/bench makes it, includes the files of tuned configurations:
# they belong to the program's target, not only to the target "all". Called with BUILD and NINJA; builds
# nothing.
execute_process(COMMAND "${NINJA}" -C "${BUILD}" -t commands switchback-bench
                RESULT_VARIABLE _status OUTPUT_VARIABLE _out ERROR_VARIABLE _error)
string(FIND "${_out}" "share/switchback/configs" _found)
if(NOT _status EQUAL 0 OR _found EQUAL -1)
  message(FATAL_ERROR "a build of switchback-bench leaves out the tuned configurations (${_status})\n${_error}")
endif()
