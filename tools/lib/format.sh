# SPDX-License-Identifier: Apache-2.0
# The sources that clang-format formats, and how to find it. Sourced after common.sh.
# shellcheck shell=sh

# Versions of clang-format differ in their results for one configuration, so the version is fixed.
clang_format_major=14

clang_format() {
  for candidate in "clang-format-$clang_format_major" clang-format; do
    if have "$candidate" &&
      "$candidate" --version | grep -q "version $clang_format_major\."; then
      say "$candidate"
      return 0
    fi
  done
  return 1
}

sources() {
  find include src autotune bench studies examples tests python/csrc -type f \
    \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) \
    2>/dev/null | LC_ALL=C sort
}

python_sources() { (find python -type f -name '*.py' -not -path 'python/build/*' && echo tools/wheel) | LC_ALL=C sort; }
