# SPDX-License-Identifier: Apache-2.0
# Refuses external flags that change the results of floating point operations. With them, NaN,
# infinities, subnormal numbers and the order of sums would not follow the specification, and
# loading the library would change the floating point environment of its host.
# (src/core/numerics.hpp refuses flags that reach the compiler in other ways.)
set(_forbidden
  -ffast-math -Ofast -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fassociative-math -freciprocal-math
  -fsingle-precision-constant -fno-honor-nans -fno-honor-infinities -fapprox-func -mdaz-ftz -ffp-model=fast
  -ffp-model=aggressive -fdenormal-fp-math= -use_fast_math --use_fast_math -ftz=true --ftz=true -prec-div=false
  --prec-div=false -prec-sqrt=false --prec-sqrt=false)

# A flag may follow a comma, as in -Xcompiler=-O2,-ffast-math or -Wl,….
function(switchback_refuse_float_flags where flags)
  foreach(_flag IN LISTS _forbidden)
    string(REGEX REPLACE "([.+*?^$()|\\[\\]])" "\\\\\\1" _pattern "${_flag}")
    if(_flag MATCHES "=$")
      set(_end "")
    else()
      set(_end "($|[ ,;\"'>])")
    endif()
    if(flags MATCHES "(^|[ ,;:=\"'])${_pattern}${_end}")
      message(FATAL_ERROR "${where} has ${_flag}, which changes the results of floating point operations: the library's "
        "results are specified to the bit. Leave it out for this project.")
    endif()
  endforeach()
endfunction()

foreach(_name IN ITEMS C_FLAGS CXX_FLAGS CUDA_FLAGS EXE_LINKER_FLAGS SHARED_LINKER_FLAGS MODULE_LINKER_FLAGS)
  switchback_refuse_float_flags("CMAKE_${_name}" "${CMAKE_${_name}}")
  foreach(_config IN ITEMS DEBUG RELEASE RELWITHDEBINFO MINSIZEREL)
    switchback_refuse_float_flags("CMAKE_${_name}_${_config}" "${CMAKE_${_name}_${_config}}")
  endforeach()
endforeach()
foreach(_name IN ITEMS COMPILE_OPTIONS LINK_OPTIONS)
  get_directory_property(_options ${_name})
  switchback_refuse_float_flags("The directory's ${_name}" "${_options}")
endforeach()
