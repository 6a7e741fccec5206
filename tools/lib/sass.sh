# SPDX-License-Identifier: Apache-2.0
# The disassembler of CUDA code, and checks of the machine code of a build's kernels. Sourced after
# common.sh.
# shellcheck shell=sh

# The disassembler's Python packages, because many toolkits lack it. They need no other package, and
# exist from 13.2 on.
cuobjdump_packages='nvidia-cuda-cuobjdump~=13.2 nvidia-cuda-nvdisasm~=13.2'
cuobjdump_folder=build/cuobjdump

# Installs the disassembler cuobjdump with pip if there is none. Succeeds even without one.
obtain_cuobjdump() {
  if have cuobjdump || [ -x /usr/local/cuda/bin/cuobjdump ] || [ -x "$cuobjdump_folder/nvidia/cu13/bin/cuobjdump" ]; then
    say "found"
  elif ! python3 -m pip --version >/dev/null 2>&1; then
    say "not found, and there is no pip to ask for $cuobjdump_packages"
  # shellcheck disable=SC2086 # cuobjdump_packages is a list of words
  elif mkdir -p build && python3 -m pip install --quiet --disable-pip-version-check --no-input --retries 2 \
    --no-deps --target "$cuobjdump_folder" $cuobjdump_packages >build/cuobjdump.log 2>&1; then
    say "$cuobjdump_packages"
  else
    say "not found, and pip could not get $cuobjdump_packages (log: build/cuobjdump.log)"
  fi
}

can_disassemble() {
  have c++filt || return 1
  have cuobjdump || [ -x /usr/local/cuda/bin/cuobjdump ] || [ -x "$cuobjdump_folder/nvidia/cu13/bin/cuobjdump" ]
}

# check_sass PRESET: checks the kernels of quantize, of int8 dW, around int8 products and of groups in a build, for
# all its architectures.
check_sass() {
  of_gemm=build/$1/src/gemm/CMakeFiles
  tools/sass --quiet --check tools/lib/sass_quantize.txt "build/$1/src/quant" &&
    tools/sass --quiet --check tools/lib/sass_products.txt "$of_gemm/switchback_gemm_cuda.dir/int8" \
      "build/$1/src/grouped" &&
    tools/sass --quiet --check tools/lib/sass_blockwise.txt "$of_gemm/switchback_gemm_cuda.dir/blockwise" &&
    tools/sass --quiet --check tools/lib/sass_wgmma.txt "$of_gemm/switchback_gemm_blockwise_wgmma.dir"
}
