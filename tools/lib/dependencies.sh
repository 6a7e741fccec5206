# SPDX-License-Identifier: Apache-2.0
# The packages that a build needs, and how to install them on Debian and Ubuntu. Nothing is installed
# that is there already. Nothing is installed on other systems (CMake fetches the libraries that it does
# not find) or with SWITCHBACK_INSTALL=0 in the environment. Sourced after common.sh.
# shellcheck shell=sh

# One need per line: how to test for it | package names in order of preference | 1 = required
# "command:X" is satisfied by a command of that name, "package" by any one of the packages.
build_needs='
command:cmake  | cmake | 1
command:ninja  | ninja-build | 1
command:c++    | g++ | 1
command:git    | git ca-certificates | 0
command:pkg-config | pkg-config pkgconf | 0
package        | libdnnl-dev libonednn-dev | 0
package        | libhwy-dev | 0
package        | libfmt-dev | 0
package        | libyaml-cpp-dev | 0
package        | libcli11-dev | 0
package        | nlohmann-json3-dev | 0
package        | libgtest-dev | 0
package        | libopenblas-openmp-dev libopenblas-dev | 0
'
# Packages for the tests of the Python package. Tests whose packages are missing are skipped.
python_needs='
package        | python3-torch | 0
package        | python3-numpy | 0
package        | python3-pip | 0
package        | python3-setuptools | 0
package        | python3-wheel | 0
package        | python3-venv | 0
'
fuzz_needs='
command:clang++ | clang | 0
'
# Packages for the reference of the public headers (tools/docs).
docs_needs='
command:doxygen | doxygen | 0
'

package_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_met HOW PACKAGES: succeeds if the command in HOW exists or one of the packages is installed.
need_met() {
  case $1 in
    command:*) have "${1#command:}" ;;
    *)
      have dpkg-query || return 1
      for candidate in $2; do
        if package_installed "$candidate"; then return 0; fi
      done
      return 1
      ;;
  esac
}

# Prints the first of the packages that this release of the distribution offers.
available_package() {
  for candidate in $1; do
    if [ -n "$(apt-cache policy "$candidate" 2>/dev/null |
      awk '/^ *Candidate:/ && $2 != "(none)" { print $2 }')" ]; then
      say "$candidate"
      return 0
    fi
  done
  return 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif [ -t 0 ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

apt_install() {
  DEBIAN_FRONTEND=noninteractive as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@" </dev/null
}

# install_needs NEEDS: installs all missing packages with one command.
install_needs() {
  missing=''
  missing_names=''
  essential_names=''
  old_ifs=$IFS
  IFS='
'
  for need in $1; do
    how=$(say "${need%%|*}" | tr -d ' ')
    rest=${need#*|}
    names=$(say "${rest%%|*}" | sed 's/^ *//; s/ *$//')
    essential=$(say "${rest##*|}" | tr -d ' ')
    IFS=$old_ifs
    if ! need_met "$how" "$names"; then
      missing="$missing$names|$essential
"
      missing_names="$missing_names ${names%% *}"
      [ "$essential" = 0 ] || essential_names="$essential_names ${names%% *}"
    fi
    IFS='
'
  done
  IFS=$old_ifs
  [ -n "$missing" ] || return 0

  if [ "${SWITCHBACK_INSTALL:-1}" = 0 ] || ! have apt-get; then
    [ -z "$essential_names" ] ||
      die "these are needed and missing, and apt-get is absent or SWITCHBACK_INSTALL=0:$essential_names"
    say "Not installed, CMake fetches or leaves out:$missing_names"
    return 0
  fi
  if [ "$(id -u)" -ne 0 ] && ! have sudo; then
    die "run as root, or install sudo or these packages first:$missing_names"
  fi

  say "Installing:$missing_names"
  as_root apt-get update </dev/null ||
    say "apt-get update failed; going on with the package lists that are there"
  to_install=''
  IFS='
'
  for need in $missing; do
    names=${need%|*}
    essential=${need##*|}
    IFS=$old_ifs
    if chosen=$(available_package "$names"); then
      to_install="$to_install $chosen"
      # git needs the package ca-certificates to fetch.
      case " $names " in *' ca-certificates '*) to_install="$to_install ca-certificates" ;; esac
    elif [ "$essential" = 1 ]; then
      die "no package of this release provides: $names"
    else
      say "No package of this release provides: $names"
    fi
    IFS='
'
  done
  IFS=$old_ifs
  if [ -n "$to_install" ]; then
    # shellcheck disable=SC2086 # to_install is a list of words
    apt_install $to_install || die "could not install:$to_install"
  fi
}

install_build_dependencies() { install_needs "$build_needs"; }
# Installs the packages for a build, for its tests and for the reference of the public headers.
install_test_dependencies() { install_needs "$build_needs$python_needs$docs_needs"; }

# Succeeds if clang can link a fuzz target (its run-time library may be a separate package).
can_fuzz() {
  have clang++ || return 1
  probe=$(mktemp -d)
  printf '%s\n' '#include <cstddef>' '#include <cstdint>' \
    'extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }' \
    >"$probe/probe.cpp"
  probe_status=0
  clang++ -fsanitize=fuzzer,address,undefined "$probe/probe.cpp" -o "$probe/probe" \
    >/dev/null 2>&1 || probe_status=$?
  rm -rf "$probe"
  return "$probe_status"
}

# Tries to install clang; the caller checks the result with can_fuzz.
install_fuzz_dependencies() {
  if can_fuzz; then return 0; fi
  install_needs "$fuzz_needs"
  if can_fuzz || ! have clang++ || ! have apt-get || [ "${SWITCHBACK_INSTALL:-1}" = 0 ]; then
    return 0
  fi
  clang_major=$(clang++ -dumpversion | cut -d. -f1)
  if runtime=$(available_package "libclang-rt-$clang_major-dev libclang-common-$clang_major-dev"); then
    apt_install "$runtime" || say "could not install $runtime"
  fi
}
