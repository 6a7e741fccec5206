# SPDX-License-Identifier: Apache-2.0
# Finds or installs a current torch. python/tests run with it and with the system's torch.
# Sourced after common.sh.
# shellcheck shell=sh

torch_folder=build/torch
torch_seconds=${SWITCHBACK_TORCH_SECONDS:-300}
# A program that prints the versions of Python and torch. It fails below torch 2.4, the first with
# torch.library's operators.
torch_probe='import sys, torch, numpy
assert hasattr(torch.library, "register_autograd"), f"torch {torch.__version__} is older than 2.4"
print(f"torch {torch.__version__}, Python {sys.version.split()[0]}")'

# Prints the Python interpreter with a current torch; fails if there is none yet.
torch_python() {
  interpreter=${SWITCHBACK_TORCH_PYTHON:-$torch_folder/bin/python}
  [ -x "$interpreter" ] && "$interpreter" -c "$torch_probe" >/dev/null 2>&1 || return 1
  (cd "$(dirname "$interpreter")" && say "$(pwd)/$(basename "$interpreter")")
}

# Prints the version of torch that pip would install, "2.15.0" or "2.15.0+cpu"; nothing if unknown.
torch_offered() {
  timeout 60 "$torch_folder/bin/python" -m pip index versions torch --retries 1 --timeout 20 \
    2>/dev/null | sed -n '1s/^torch (\(.*\))$/\1/p'
}

# obtain_torch WHATEVER: looks for a current torch, or installs one with pip. Succeeds even without one.
# Builds for Linux on x86_64 that are not for the CPU alone need gigabytes of CUDA libraries: they are
# installed only if WHATEVER is 1.
obtain_torch() {
  if python=$(torch_python); then
    say "found: $("$python" -c "$torch_probe"), $python"
    return 0
  elif [ -n "${SWITCHBACK_TORCH_PYTHON:-}" ]; then
    say "skipped: SWITCHBACK_TORCH_PYTHON = $SWITCHBACK_TORCH_PYTHON is not a Python with NumPy and torch 2.4 or later"
    return 0
  elif [ "${SWITCHBACK_INSTALL:-1}" = 0 ]; then
    say "skipped: there is none in $torch_folder, and SWITCHBACK_INSTALL=0"
    return 0
  fi
  mkdir -p build
  rm -rf "$torch_folder"
  if ! have timeout || ! python3 -m venv "$torch_folder" >build/torch.log 2>&1; then
    say "skipped: python3 -m venv made no environment (log: build/torch.log)"
    return 0
  fi
  offered=$(torch_offered || true)
  free_mb=$(df -Pm build | awk 'NR == 2 { print $4 }')
  need_mb=2000
  case $offered,$(uname -sm) in
    *+cpu,* | ,*) ;;
    *,Linux\ x86_64)
      need_mb=12000
      if [ "$1" -ne 1 ]; then
        say "skipped: pip offers torch $offered, which brings 3 GB of CUDA libraries. --torch takes it;"
        say "pip's settings (PIP_EXTRA_INDEX_URL) may name a place with builds for the CPU alone"
        return 0
      fi
      ;;
  esac
  if [ -z "$offered" ]; then
    say "skipped: pip finds no torch"
  elif [ "$free_mb" -lt "$need_mb" ]; then
    say "skipped: torch $offered needs $need_mb MB of disk space, and $free_mb MB are free"
  elif ! timeout "$torch_seconds" "$torch_folder/bin/python" -m pip install --quiet --no-input \
    --no-cache-dir --no-compile --disable-pip-version-check --retries 2 \
    "torch==$offered" numpy setuptools wheel >>build/torch.log 2>&1; then
    rm -rf "$torch_folder"
    say "skipped: pip did not install torch $offered within $torch_seconds s (log: build/torch.log)"
  else
    say "installed: $("$torch_folder/bin/python" -c "$torch_probe"), in $torch_folder"
    # The test test_comfy_kitchen.py is skipped without the package comfy-kitchen.
    timeout 60 "$torch_folder/bin/python" -m pip install --quiet --no-input --no-deps --no-cache-dir \
      --disable-pip-version-check comfy-kitchen >>build/torch.log 2>&1 || say "without comfy-kitchen"
  fi
}

# test_with_torch PRESET JOBS: runs python/tests with the current torch and the library of a build,
# and then restores the build's configuration.
test_with_torch() {
  logged "build/$1/configure_torch.log" cmake -S . -B "build/$1" \
    "-DSWITCHBACK_PYTHON_CURRENT=$(torch_python)"
  test_status=0
  ctest --test-dir "build/$1" --output-on-failure --no-tests=error --parallel "$2" \
    -R '^python_.*_current_test$' >"build/$1/ctest_torch.log" 2>&1 || test_status=$?
  cat "build/$1/ctest_torch.log"
  logged "build/$1/configure_torch.log" cmake -S . -B "build/$1" -DSWITCHBACK_PYTHON_CURRENT=
  return "$test_status"
}
