# SPDX-License-Identifier: Apache-2.0
# The tests for 64-bit Arm: cross-compiled, and run by qemu as CPUs with different instructions.
# Sourced after common.sh and dependencies.sh.
# shellcheck shell=sh

aarch64_needs='
command:aarch64-linux-gnu-g++ | g++-aarch64-linux-gnu | 0
command:qemu-aarch64 | qemu-user | 0
'
# Libraries for the cross-compiled tests. CMake fetches the sources of those that are missing.
aarch64_library_needs='
package | libhwy-dev:arm64 | 0
package | libfmt-dev:arm64 | 0
package | libgtest-dev:arm64 | 0
'

# Installs packages for cross-compiling. Debian's archive has those of all architectures; Ubuntu's
# has not.
install_aarch64_dependencies() {
  install_needs "$aarch64_needs"
  if [ "${SWITCHBACK_INSTALL:-1}" = 0 ] || ! have dpkg || ! grep -q '^ID=debian$' /etc/os-release; then
    return 0
  fi
  if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    as_root dpkg --add-architecture arm64 || return 0
  fi
  install_needs "$aarch64_library_needs"
}

can_emulate_aarch64() {
  have aarch64-linux-gnu-g++ && have qemu-aarch64
}

# Succeeds on a 64-bit Arm machine, whose other tests already run on such a CPU.
is_aarch64() {
  [ "$(uname -m)" = aarch64 ] || [ "$(uname -m)" = arm64 ]
}

# Emulated CPU, its best instruction set, test program, tests. Most suites run on the CPU that has
# every instruction set, and use each of them. Tests on the other CPUs show that the library chooses
# the right instruction set there.
aarch64_runs='
max          neon_i8mm    quant_test          Engines*:Requests*:Blocks*:Strips*-*RowsThatThreadsShare:*EveryConfiguration*
max          neon_i8mm    gemm_int8_test      *
max          neon_i8mm    gemm_blockwise_test *
max          neon_i8mm    gemm_standard_test  *
max          neon_i8mm    linear_test         Linear.*:LinearBits.*:LinearInt8Dw.*
max          neon_i8mm    grouped_test        *
max          neon_i8mm    core_test           *
max          neon_i8mm    capi_test           *
max          neon_i8mm    capi_guard_test     *
neoverse-n1  neon_dotprod core_test           Context.*
neoverse-n1  neon_dotprod gemm_int8_test      Int8Sums*:Int8Packing*
neoverse-n1  neon_dotprod linear_test         LinearBits.*
neoverse-n1  neon_dotprod capi_test           *
cortex-a72   neon         core_test           Context.*
cortex-a72   neon         gemm_int8_test      Int8Packing*
cortex-a72   neon         linear_test         LinearBits.*
cortex-a72   neon         capi_test           *
'

# run_emulated CPU ISA PROGRAM FILTER: runs tests of a program on a CPU that qemu emulates.
run_emulated() {
  emulated_log=build/aarch64/$3-$1.log
  # Uses the libraries of the cross compiler: those of an installed arm64 may be of another version.
  logged "$emulated_log" env SWITCHBACK_TUNE=off SWITCHBACK_TEST_ISA="$2" OMP_WAIT_POLICY=passive \
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib -cpu "$1" \
    "build/aarch64/bin/$3" --gtest_filter="$4"
  say "$1: $3: $(grep -E '^\[  PASSED  \]|checks, 0 failed$' "$emulated_log" | tail -n 1)"
}

# test_aarch64 JOBS: builds the tests for 64-bit Arm and runs them on emulated CPUs.
test_aarch64() {
  build aarch64 "$1"
  printf '%s' "$aarch64_runs" | sed '/^$/d' | xargs -P "$1" -L 1 \
    sh -euc '. tools/lib/common.sh; . tools/lib/aarch64.sh; run_emulated "$@"' tools/test
}
