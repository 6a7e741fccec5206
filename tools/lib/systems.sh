# SPDX-License-Identifier: Apache-2.0
# Compiles the library's sources for the CPU for other systems, without code: for macOS on Arm with clang, and
# for Windows with MinGW-w64. There are no headers of macOS here, so those of glibc for 64-bit Arm take their
# place, with the few in tests/systems/macos that differ. Sourced after common.sh and format.sh.
# shellcheck shell=sh

# Sources that call POSIX functions. A library for Windows needs others in their place.
posix_sources='src/core/aligned_buffer.cpp src/core/cpu/isa.cpp src/core/cpu/memory.cpp
src/core/cpu/threads_pool.cpp src/measure/cpu_load.cpp src/measure/disturbance.cpp'

# compile_for SYSTEM FILE: checks one source.
compile_for() {
  arm=/usr/aarch64-linux-gnu/include
  arm_cxx=$arm/c++/$(aarch64-linux-gnu-g++ -dumpversion)
  case $1 in
    macos)
      compiler="clang++ --target=arm64-apple-macos13 -D_GNU_SOURCE -U__nonnull -nostdlibinc -nostdinc++
        -isystem tests/systems/macos -isystem $arm_cxx -isystem $arm_cxx/aarch64-linux-gnu -isystem $arm"
      ;;
    windows) compiler=x86_64-w64-mingw32-g++-posix ;;
  esac
  # shellcheck disable=SC2086 # compiler is a command with its options
  $compiler -std=c++20 -fsyntax-only -w -DSWITCHBACK_VERSION='"0"' -I src -I include -I . \
    -isystem build/systems "$2"
}

# check_system SYSTEM JOBS: checks all sources; fails if one does not compile.
check_system() {
  mkdir -p build/systems
  for library in hwy fmt nlohmann; do ln -sfn "/usr/include/$library" "build/systems/$library"; done
  skipped=src/gemm/int8/cpu/onednn.cpp  # oneDNN's headers are those of this machine
  [ "$1" = macos ] || skipped="$skipped $posix_sources"
  # shellcheck disable=SC2086 # skipped is a list of words
  sources | grep '^src/.*\.cpp$' | grep -v '/cuda/' | grep -vxF "$(printf '%s\n' $skipped)" >build/systems/sources
  say "compiling for $1: $(wc -l <build/systems/sources) sources"
  xargs -P "$2" -n 1 sh -euc '. tools/lib/systems.sh; compile_for "$@"' tools/lint "$1" <build/systems/sources
}
