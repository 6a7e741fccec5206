# SPDX-License-Identifier: Apache-2.0
# The kernels that are built on CUTLASS: where CUTLASS comes from, and how they are built and tested.
# Sourced after common.sh.
# shellcheck shell=sh

# The version of CUTLASS that the kernels were written and compiled with. Later 4.x versions may
# work.
cutlass_package=nvidia-cutlass==4.2.0.0
cutlass_folder=build/cutlass

# Prints the folder of CUTLASS, which holds include/cutlass (or cutlass); fails if there is none
# yet.
cutlass_place() {
  for place in "${SWITCHBACK_CUTLASS_DIR:-}" "$cutlass_folder/cutlass_library/source" \
    "$(python3 -c "import importlib.util as u
print(u.find_spec('cutlass_library').submodule_search_locations[0])" 2>/dev/null)/source"; do
    if [ -n "$place" ] && { [ -f "$place/include/cutlass/version.h" ] ||
      [ -f "$place/cutlass/version.h" ]; }; then
      (cd "$place" && pwd)
      return 0
    fi
    # If SWITCHBACK_CUTLASS_DIR is set, do not use another folder.
    [ "$place" != "${SWITCHBACK_CUTLASS_DIR:-}" ] || [ -z "$place" ] || return 1
  done
  return 1
}

# Looks for CUTLASS, and installs its headers with pip if there are none. Succeeds even without CUTLASS.
obtain_cutlass() {
  if place=$(cutlass_place); then
    say "found in $place"
  elif [ -n "${SWITCHBACK_CUTLASS_DIR:-}" ]; then
    say "SWITCHBACK_CUTLASS_DIR = $SWITCHBACK_CUTLASS_DIR holds no CUTLASS"
  elif ! python3 -m pip --version >/dev/null 2>&1; then
    say "not found, and there is no pip to ask for $cutlass_package"
  elif mkdir -p build && python3 -m pip install --quiet --disable-pip-version-check --no-input --retries 2 \
    --no-deps --target "$cutlass_folder" "$cutlass_package" >build/cutlass.log 2>&1 &&
    place=$(cutlass_place); then
    say "$cutlass_package, in $place"
  else
    say "not found, and pip could not get $cutlass_package (log: build/cutlass.log)"
  fi
}

# Builds the kernels that need CUTLASS. A warning is an error, and the assembler warns of registers in memory.
build_fused() {
  SWITCHBACK_CUTLASS_DIR=$(cutlass_place)
  export SWITCHBACK_CUTLASS_DIR
  build fused "$1" --target switchback_gemm_fused
}

# Runs the CUTLASS kernels for compute capability 8.x on the emulated device, in the existing test
# build of a preset. It then restores the configuration of that build, so that later test runs are
# not slower.
test_fused() {
  if ctest --test-dir "build/$1" -N -R '^gemm_fused_sm80_test$' | grep -q 'Total Tests: 1'; then
    say "ran among the tests of $1, which found CUTLASS by itself"
    return 0
  fi
  logged "build/$1/configure_fused.log" cmake -S . -B "build/$1" -DSWITCHBACK_CUTLASS=HEADERS \
    "-DSWITCHBACK_CUTLASS_DIR=$(cutlass_place)"
  test_status=0
  if ! ctest --test-dir "build/$1" -N -R '^gemm_fused_sm80_test$' | grep -q 'Total Tests: 1'; then
    say "left out: that takes g++, and a build with the CUDA backend"
  else
    logged "build/$1/build_fused.log" cmake --build "build/$1" --parallel "$2" \
      --target gemm_fused_sm80_test &&
      ctest --test-dir "build/$1" --output-on-failure -R '^gemm_fused_sm80_test$' || test_status=$?
  fi
  logged "build/$1/configure_fused.log" cmake -S . -B "build/$1" -DSWITCHBACK_CUTLASS=AUTO \
    -DSWITCHBACK_CUTLASS_DIR=
  return "$test_status"
}
