# SPDX-License-Identifier: Apache-2.0
# What ./tools/bench builds has the tuned configurations beside it: they are part of the program's
# build, not of everything's. Called with BUILD and NINJA; builds nothing.
execute_process(COMMAND "${NINJA}" -C "${BUILD}" -t commands switchback-bench
                RESULT_VARIABLE _status OUTPUT_VARIABLE _out ERROR_VARIABLE _error)
string(FIND "${_out}" "share/switchback/configs" _found)
if(NOT _status EQUAL 0 OR _found EQUAL -1)
  message(FATAL_ERROR "a build of switchback-bench leaves out the tuned configurations (${_status})\n${_error}")
endif()
