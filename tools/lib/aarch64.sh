# SPDX-License-Identifier: Apache-2.0
# The tests for 64-bit Arm: cross-compiled, and run by qemu as CPUs with different instructions. The Debian
# packages for it, which are unpacked and used there. Sourced after common.sh and dependencies.sh.
# shellcheck shell=sh

aarch64_needs='
command:aarch64-linux-gnu-g++ | g++-aarch64-linux-gnu | 0
command:qemu-aarch64 | qemu-user | 0
'
# Libraries for cross-compiling. CMake fetches the sources of those that are missing.
arm64_libraries='libhwy-dev libhwy1 libfmt-dev libfmt9 libgtest-dev libgmock-dev'
# Debian packages of the architecture arm64 are unpacked into a folder. The packages that are installed on
# this system, and the list of its architectures, stay as they are.
arm64=$(pwd -P)/build/arm64

# Runs apt-get for the architecture arm64, with another state than the system's: nothing is installed there.
arm64_apt() {
  apt-get -q -y -o "Dir::State=$arm64/state" -o "Dir::State::status=$arm64/state/status" \
    -o "Dir::Cache=$arm64/cache" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
    -o "APT::Sandbox::User=$(id -un)" -o Acquire::Retries=3 "$@" </dev/null
}

# unpack_arm64 FOLDER FILE...: unpacks Debian packages into a folder.
unpack_arm64() {
  unpack_into=$1
  shift
  mkdir -p "$unpack_into"
  for package in "$@"; do dpkg -x "$package" "$unpack_into"; done
}

# Succeeds where apt-get offers packages of arm64. Debian's archive has those of all architectures; Ubuntu's
# has not.
has_arm64_archive() {
  [ "${SWITCHBACK_INSTALL:-1}" != 0 ] && have apt-get && have dpkg && grep -q '^ID=debian$' /etc/os-release
}

# Installs the cross compiler and qemu, and downloads the libraries for cross-compiling. Succeeds even if it
# cannot: can_build_aarch64 says what there is.
install_aarch64_dependencies() {
  (install_needs "$aarch64_needs") || return 0
  if ! has_arm64_archive || [ -d "$arm64/root" ]; then return 0; fi
  mkdir -p "$arm64/state/lists/partial" "$arm64/cache/archives/partial" "$arm64/libraries"
  : >"$arm64/state/status"
  arm64_apt update || return 0
  # shellcheck disable=SC2086 # arm64_libraries is a list of words
  (cd "$arm64/libraries" && arm64_apt download $arm64_libraries) || return 0
  unpack_arm64 "$arm64/unpacked" "$arm64/libraries"/*.deb
  mv "$arm64/unpacked" "$arm64/root"
}

# Succeeds if there are a cross compiler, qemu and the libraries. Where no archive has the libraries, CMake
# fetches their sources.
can_build_aarch64() {
  have aarch64-linux-gnu-g++ && have qemu-aarch64 && { [ -d "$arm64/root" ] || ! has_arm64_archive; }
}

# Succeeds on a 64-bit Arm machine, whose other tests already run on such a CPU.
is_aarch64() {
  [ "$(uname -m)" = aarch64 ] || [ "$(uname -m)" = arm64 ]
}

# Emulated CPU, its best instruction set, test program, tests. Most suites run on the CPU that has
# every instruction set, and use each of them. Tests on the other CPUs show that the library chooses
# the right instruction set there. Left out are tests that take long under emulation and differ from
# others in values or in the number of threads only.
aarch64_runs='
max          neon_i8mm    quant_test          Engines*:Requests*:Blocks*:Strips*-*RowsThatThreadsShare:*EveryConfiguration*:*EverySignificand:*/1.ScaledCodes:*/2.ScaledCodes:*LargeMatrices
max          neon_i8mm    gemm_int8_test      *-*EveryCandidateAndOddBlocks*
max          neon_i8mm    linear_test         Linear.*:LinearBits.*:LinearInt8Dw.*-*NonFinite*
max          neon_i8mm    grouped_test        *-*/1.RowsInPlace:*/2.RowsInPlace
max          neon_i8mm    gemm_standard_test  *-*EveryConfiguration*:*RoundedOnce
max          neon_i8mm    gemm_blockwise_test *
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
  # Uses the C and C++ libraries of the cross compiler.
  logged "$emulated_log" env SWITCHBACK_TUNE=off SWITCHBACK_TEST_ISA="$2" OMP_WAIT_POLICY=passive \
    qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu "$1" \
    -E "LD_LIBRARY_PATH=/usr/aarch64-linux-gnu/lib:$arm64/root/usr/lib/aarch64-linux-gnu" \
    "build/aarch64/bin/$3" --gtest_filter="$4"
  say "$1: $3: $(grep -E '^\[  PASSED  \]|checks, 0 failed$' "$emulated_log" | tail -n 1)"
}

# needed_packages FILE: prints the names of the Debian packages with the libraries that a program or
# library needs. Debian's policy derives them from the names of the libraries.
needed_packages() {
  aarch64-linux-gnu-readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sed -E '
    /^libswitchback/d; s/^(ld-linux-aarch64|libc|libm)\.so\..*/libc6/; s/^libgcc_s\.so\./libgcc-s/
    s/([0-9])\.so\./\1-/; s/\.so\.//' | sort -u
}

# Makes the Debian packages for arm64, unpacks them with all packages that they depend on, and builds and runs
# programs that use them.
test_arm64_packages() {
  made=build/aarch64/packages
  rm -rf "$made" "$arm64/installed" "$arm64/cache/archives"
  mkdir -p "$arm64/cache/archives/partial"
  depends=$(for file in build/aarch64/lib/libswitchback.so build/aarch64/bin/switchback-validate; do
    needed_packages "$file"; done | sort -u | paste -sd, -)
  # dpkg-shlibdeps knows only libraries of installed packages.
  (cd build/aarch64 && logged packages.log cpack -G DEB -B "$(pwd)/packages" \
    -D CPACK_DEBIAN_PACKAGE_ARCHITECTURE=arm64 -D CPACK_DEBIAN_PACKAGE_SHLIBDEPS=OFF \
    -D "CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS=$depends")
  logged build/aarch64/depends.log arm64_apt install --no-install-recommends --download-only \
    ./"$made"/libswitchback*.deb
  unpack_arm64 "$arm64/installed" "$arm64/cache/archives"/*.deb "$made"/*.deb
  for language in c cpp; do
    case $language in c) compiler="gcc -std=c11" ;; cpp) compiler="g++ -std=c++20" ;; esac
    # shellcheck disable=SC2086 # compiler is a command with an option
    logged build/aarch64/consumer.log aarch64-linux-gnu-$compiler -Wall -Wextra -Werror \
      "tests/consumer/package/consumer.$language" -o "build/aarch64/consumer_$language" \
      -I "$arm64/installed/usr/include" -L "$arm64/installed/usr/lib/aarch64-linux-gnu" -lswitchback \
      -Wl,-rpath-link,"$arm64/installed/usr/lib/aarch64-linux-gnu"
    logged build/aarch64/consumer.log env SWITCHBACK_TUNE=off \
      qemu-aarch64 -L "$arm64/installed" -cpu max "build/aarch64/consumer_$language"
    say "package libswitchback-dev: $(tail -n 1 build/aarch64/consumer.log)"
  done
}

# test_aarch64 JOBS: builds the tests for 64-bit Arm and runs them on emulated CPUs.
test_aarch64() {
  [ ! -d "$arm64/root" ] || configure_options="-DCMAKE_PREFIX_PATH=$arm64/root/usr"
  build aarch64 "$1"
  printf '%s' "$aarch64_runs" | sed '/^$/d' | xargs -P "$1" -L 1 \
    sh -euc '. tools/lib/common.sh; . tools/lib/aarch64.sh; run_emulated "$@"' tools/test
  [ ! -d "$arm64/root" ] || test_arm64_packages
}
