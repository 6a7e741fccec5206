# SPDX-License-Identifier: Apache-2.0
# Compiles device code to PTX (no assembler, no GPU: seconds) and counts the kernels that store vectors of
# words to global memory. If the compiler splits such a store into four of 4 bytes, results stay right,
# but there are four times the transactions. No other test notices that. Called by the test
# vector_stores_test with NVCC, SOURCE_DIR and OUTPUT (a file).
set(_failures "")

# expect_stores(FILE VECTORS COUNT): expects that COUNT kernels of the file store vectors of VECTORS
# 4-byte words (a regular expression's set of digits). Any other number is a failure. A change that adds
# such kernels must change COUNT.
function(expect_stores file vectors count)
  execute_process(
    COMMAND "${NVCC}" -ptx -O3 -DNDEBUG -std=c++20 -fmad=false -arch=compute_80
            "-I${SOURCE_DIR}/include" "-I${SOURCE_DIR}/src" "${SOURCE_DIR}/src/${file}" -o "${OUTPUT}"
    COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS "${OUTPUT}" _lines REGEX "^\\.?[a-z ]*\\.entry |st\\.global[a-z.]*\\.v[${vectors}]\\.")
  set(_found 0)
  set(_is_new FALSE)
  foreach(_line IN LISTS _lines)
    if(_line MATCHES "\\.entry ")
      set(_is_new TRUE)
    elseif(_is_new)
      math(EXPR _found "${_found} + 1")
      set(_is_new FALSE)
    endif()
  endforeach()
  message(STATUS "${file}: ${_found} kernels with stores of vectors, expected ${count}")
  if(NOT _found EQUAL count)
    set(_failures "${_failures} ${file}" PARENT_SCOPE)
  endif()
endfunction()

# The kernels that dequantize the result of a product: f32, f16, bf16 and int32.
expect_stores(gemm/int8/cuda/epilogue.cu 4 4)
expect_stores(gemm/int8/cuda/pad.cu 4 2)
# The kernels of dW in int8, for two tiles and three types, with sums counted in two ways; and the kernels
# that add partial results.
expect_stores(gemm/blockwise/cuda/mma.cu 4 18)
expect_stores(quant/cuda/dequantize.cu 4 3)
expect_stores(quant/cuda/column_sums.cu 4 3)
# A store of transposed codes writes sixteen rows of a column: 16 bytes.
expect_stores(quant/cuda/transpose.cu 4 18)
# Codes have a quarter or half of the bytes of their source, so a store writes 4 or 8 bytes.
expect_stores(quant/cuda/global.cu 24 4)
expect_stores(quant/cuda/rowwise.cu 24 20)
# The kernels of f16 activations also exist in a form that reads a list of all values.
expect_stores(quant/cuda/activation.cu 24 23)
expect_stores(quant/cuda/rotate.cu 4 65)
# Kernels of grouped operations: rows copied, rows summed, sums of columns; then codes.
expect_stores(grouped/cuda/gather.cu 4 3)
expect_stores(grouped/cuda/combine.cu 4 9)
expect_stores(grouped/cuda/column_sums.cu 4 3)
expect_stores(grouped/cuda/quantize.cu 24 12)
if(_failures)
  message(FATAL_ERROR "other stores than expected in:${_failures}")
endif()
