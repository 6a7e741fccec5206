# SPDX-License-Identifier: Apache-2.0
# Shared by the commands in tools/: messages, phases that are timed, build jobs. Sourced, never run.
# shellcheck shell=sh

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# As many compilers as there are cores, but no more than memory holds: a sanitized translation unit
# of the vector kernels takes up to 1.5 GB.
default_jobs() {
  cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || true)
  if [ -n "$memory_kb" ]; then
    fit=$((memory_kb / 1500000))
    [ "$fit" -ge 1 ] || fit=1
    [ "$cores" -le "$fit" ] || cores=$fit
  fi
  say "$cores"
}

# phase NAME COMMAND...: runs the command, says how long it took; the first failure ends everything.
phases=''
phase() {
  phase_name=$1
  shift
  say ""
  say "==> $phase_name"
  phase_began=$(date +%s)
  # `set -e` holds inside the command only where its status is not being tested: not in `if` or `||`.
  set +e
  (
    set -e
    "$@"
  )
  phase_status=$?
  set -e
  phase_seconds=$(($(date +%s) - phase_began))
  if [ "$phase_status" -ne 0 ]; then
    phases="$phases$(printf '\n  FAILED  %5d s  %s' "$phase_seconds" "$phase_name")"
    say ""
    say "Phases:$phases"
    die "phase '$phase_name' failed (exit status $phase_status)"
  fi
  phases="$phases$(printf '\n  passed  %5d s  %s' "$phase_seconds" "$phase_name")"
  say "<== $phase_name: passed in $phase_seconds s"
}

# logged FILE COMMAND...: output goes to the file, and is shown only when the command fails.
logged() {
  logged_file=$1
  shift
  mkdir -p "$(dirname "$logged_file")"
  if ! "$@" >"$logged_file" 2>&1; then
    tail -n 80 "$logged_file"
    printf '%s: failed: %s (log: %s)\n' "${0##*/}" "$*" "$logged_file" >&2
    return 1
  fi
}

# CMake refuses the cache of a checkout that was moved or copied, so such a build starts afresh.
forget_moved_build() {
  cache=build/$1/CMakeCache.txt
  if [ -f "$cache" ] && ! grep -q "^CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)\$" "$cache"; then
    rm -rf "build/$1"
  fi
}

# Compiles through ccache where that is installed, unless SWITCHBACK_CCACHE=0 or the environment
# already names a launcher. Objects do not depend on where the checkout lies, so that a new clone of
# sources that were compiled before builds in a fraction of the time.
use_ccache() {
  if [ "${SWITCHBACK_CCACHE:-1}" = 0 ] || [ -n "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] || ! have ccache; then
    return 0
  fi
  CMAKE_C_COMPILER_LAUNCHER=ccache
  CMAKE_CXX_COMPILER_LAUNCHER=ccache
  CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  CCACHE_BASEDIR=${CCACHE_BASEDIR:-$(pwd -P)}
  CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
  export CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CMAKE_CUDA_COMPILER_LAUNCHER
  export CCACHE_BASEDIR CCACHE_NOHASHDIR
}

# build PRESET JOBS [cmake --build arguments...]
build() {
  build_preset=$1
  build_jobs=$2
  shift 2
  use_ccache
  forget_moved_build "$build_preset"
  logged "build/$build_preset/configure.log" cmake --preset "$build_preset"
  # Prints a line now and then, so that a long build does not look as if it hangs.
  (
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM
    while :; do
      sleep 30 &
      nap=$!
      wait "$nap"
      at=$(grep -oE '^\[[0-9]+/[0-9]+\]' "build/$build_preset/build.log" 2>/dev/null | tail -n 1)
      [ -z "$at" ] || printf 'building %s: %s\n' "$build_preset" "$at" >&2
    done
  ) &
  ticker=$!
  build_status=0
  logged "build/$build_preset/build.log" \
    cmake --build --preset "$build_preset" --parallel "$build_jobs" "$@" || build_status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return "$build_status"
}
