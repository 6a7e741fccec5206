# SPDX-License-Identifier: Apache-2.0
# Compares the symbols that LIBRARY exports (as NM lists them) with the functions that the C headers
# in HEADERS declare.
cmake_minimum_required(VERSION 3.22)

# find_foreign(RESULT SYMBOL...): the symbols that the library must not export.
function(find_foreign result)
  set(foreign "")
  foreach(symbol IN LISTS ARGN)
    # Allowed are, for C, switchback_x; for C++, functions and data of namespace switchback (_ZN,
    # _ZNK), and vtable, typeinfo and typeinfo name of its classes (_ZTV, _ZTI, _ZTS). Its inner
    # namespaces are not allowed.
    if(symbol MATCHES "^_Z(NK?|T[VIS]N)10switchback(4core|4capi|5quant|9gemm_int8|6linear|8standard)"
       OR NOT symbol MATCHES "^(switchback_[a-z0-9_]+$|_Z(NK?|T[VIS]N)10switchback)")
      list(APPEND foreign "${symbol}")
    endif()
  endforeach()
  set(${result} "${foreign}" PARENT_SCOPE)
endfunction()

execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE listing
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NM} could not read ${LIBRARY}")
endif()
string(REGEX MATCHALL "[^ \n]+\n" exported "${listing}")
list(TRANSFORM exported STRIP)
# Removes version nodes, and the symbols that linkers and sanitizers add to every library.
list(TRANSFORM exported REPLACE "@.*$" "")
list(FILTER exported EXCLUDE REGEX "^(_init|_fini|_end|_edata|__bss_start|_etext)$")
list(FILTER exported EXCLUDE REGEX "^(__asan|__odr_asan|__ubsan|__tsan|__sancov|__start_|__stop_)")
list(LENGTH exported count)
if(count LESS 40)
  message(FATAL_ERROR "only ${count} exported symbols in ${LIBRARY}")
endif()
find_foreign(foreign ${exported})
if(foreign)
  list(JOIN foreign "\n  " foreign)
  message(FATAL_ERROR "${LIBRARY} exports what is not its API:\n  ${foreign}")
endif()

file(STRINGS "${HEADERS}/switchback.h" lines)
file(STRINGS "${HEADERS}/switchback_groups.h" lines_of_groups)
list(JOIN lines "\n" text)
list(JOIN lines_of_groups "\n" text_of_groups)
string(APPEND text "\n${text_of_groups}")
# Inline functions of the header are not exported, so only declarations with SWITCHBACK_API count.
string(REGEX MATCHALL "SWITCHBACK_API [a-z0-9_ *\n]+\\(" declared "${text}")
list(TRANSFORM declared REPLACE "^.*(switchback_[a-z0-9_]+)\\($" "\\1")
list(REMOVE_DUPLICATES declared)
list(LENGTH declared declared_count)
if(declared_count LESS 30)
  message(FATAL_ERROR "found only ${declared_count} functions in ${HEADERS}")
endif()
foreach(function IN LISTS declared)
  if(NOT function IN_LIST exported)
    message(FATAL_ERROR "${LIBRARY} lacks ${function}, which the C headers declare")
  endif()
endforeach()
foreach(symbol IN LISTS exported)
  if(symbol MATCHES "^switchback_" AND NOT symbol IN_LIST declared)
    message(FATAL_ERROR "${LIBRARY} exports ${symbol}, which the C headers do not declare")
  endif()
endforeach()
message(STATUS "${count} exported symbols, ${declared_count} of them the C ABI's")
