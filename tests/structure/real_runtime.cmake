# SPDX-License-Identifier: Apache-2.0
# Whether what is compiled for the real device refers to the real runtime. NM: the program. REAL: archives
# that may name nothing of the emulated device. MEMORY: the one of them that has the real device's memory.
# EMULATED: an archive that does name it, so that the search is known to find it.
function(undefined_in archive result)
  execute_process(COMMAND "${NM}" --undefined-only "${archive}" OUTPUT_VARIABLE _names
    ERROR_VARIABLE _errors COMMAND_ERROR_IS_FATAL ANY)
  set(${result} "${_names}" PARENT_SCOPE)
endfunction()

undefined_in("${EMULATED}" _names)
if(NOT _names MATCHES "switchback_cuda_emu")
  message(FATAL_ERROR "${EMULATED}: found nothing of the emulated device, so the search is wrong")
endif()
foreach(_archive IN LISTS REAL)
  undefined_in("${_archive}" _names)
  if(_names MATCHES "[^ \n]*switchback_cuda_emu[^\n]*")
    message(FATAL_ERROR "${_archive}: refers to the emulated device: ${CMAKE_MATCH_0}")
  endif()
endforeach()
undefined_in("${MEMORY}" _names)
foreach(_name IN ITEMS cudaMallocHost cudaFreeHost cudaDeviceSynchronize)
  if(NOT _names MATCHES " U ${_name}\n")
    message(FATAL_ERROR "${MEMORY}: does not refer to the runtime's ${_name}")
  endif()
endforeach()
