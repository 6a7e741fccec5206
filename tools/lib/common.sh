# SPDX-License-Identifier: Apache-2.0
# Functions that the commands in tools/ share: messages, timed phases, build jobs. Sourced, never run.
# shellcheck shell=sh

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The default number of compilers: one per core, but no more than fit in memory. A sanitized
# translation unit of the vector kernels needs up to 1.5 GB.
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

# phase NAME COMMAND...: runs the command and prints its time; the first failure ends the script.
phases=''
phase() {
  phase_name=$1
  shift
  say ""
  say "==> $phase_name"
  phase_began=$(date +%s)
  # `set -e` has no effect in a command whose status is tested by `if` or `||`.
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

# logged FILE COMMAND...: runs a command, writes its output to the file, and shows it only if the
# command fails.
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

# Deletes a build whose checkout was moved or copied, because CMake refuses its cache.
forget_moved_build() {
  cache=build/$1/CMakeCache.txt
  if [ -f "$cache" ] && ! grep -q "^CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)\$" "$cache"; then
    rm -rf "build/$1"
  fi
}

# Compiles through ccache if it is installed, unless SWITCHBACK_CCACHE=0 or the environment already
# names a launcher. Objects do not depend on the path of the checkout, so a new clone of the same
# sources builds in a fraction of the time.
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

# Succeeds if there is a driver of an NVIDIA GPU. Programs built for CUDA need it.
has_cuda_driver() {
  [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ] || have nvidia-smi
}

# Prints a number of seconds as text, in seconds or minutes.
duration() {
  if [ "$1" -lt 90 ]; then say "$1 s"; else say "$((($1 + 30) / 60)) min"; fi
}

# report_build PRESET PROCESS: prints the progress and the time left every half minute, so that a
# long build does not seem to hang. It ends when PROCESS ends, because an interrupt does not reach
# background jobs of a shell without job control.
report_build() {
  waited=0
  while sleep 1 && kill -0 "$2" 2>/dev/null; do
    waited=$((waited + 1))
    [ $((waited % 30)) -eq 0 ] || continue
    at=$(grep -oE '^\[[0-9]+/[0-9]+\]' "build/$1/build.log" 2>/dev/null | tail -n 1 | tr -d '[]')
    [ -n "$at" ] || continue
    done_steps=${at%/*}
    steps=${at#*/}
    [ "$done_steps" -gt 0 ] || continue
    say "building $1: $((100 * done_steps / steps)) % ($done_steps of $steps steps), about $(
      duration $((waited * (steps - done_steps) / done_steps))) left" >&2
  done
}

# build PRESET JOBS [cmake --build arguments...]: configures a build with the options in
# $configure_options, then builds it.
configure_options=''
build() {
  build_preset=$1
  build_jobs=$2
  shift 2
  use_ccache
  forget_moved_build "$build_preset"
  # shellcheck disable=SC2086  # configure_options is a list of words without spaces
  logged "build/$build_preset/configure.log" cmake --preset "$build_preset" $configure_options
  rm -f "build/$build_preset/build.log"
  report_build "$build_preset" $$ &
  ticker=$!
  # Ctrl-C ends the compilers, which are in the foreground; then this trap ends the script.
  trap 'kill "$ticker" 2>/dev/null; trap - INT; kill -INT $$' INT
  build_status=0
  logged "build/$build_preset/build.log" \
    cmake --build --preset "$build_preset" --parallel "$build_jobs" "$@" || build_status=$?
  trap - INT
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return "$build_status"
}
