#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills commands that write to a tuning cache (tune, import) at random times. No problem that was in
# the cache may be lost, and the file must be complete at any time.
#
#   tools/lib/stress_cache.sh build/release/bin/switchback-bench [COUNT]
#
# COUNT commands (default 50) are started and killed. Prints one line. Exit codes: 1 if a problem was
# lost or a file is not complete, 2 on a usage error.
set -u

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -x "$1" ]; then
  echo "usage: $0 PATH-OF-switchback-bench [COUNT]" >&2
  exit 2
fi
case ${2:-50} in
  '' | *[!0-9]*)
    echo "$0: COUNT '$2': it must be a number" >&2
    exit 2
    ;;
esac
program=$(realpath "$1")
count=${2:-50}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export SWITCHBACK_TUNE_CACHE="$work/cache" SWITCHBACK_TUNE_SYSTEM="$work/none"
unset SWITCHBACK_TUNE SWITCHBACK_TUNE_RECORD XDG_CACHE_HOME

started=0 killed=0 wrong=0

# Prints the keys of the problems in the cache file $1, sorted.
keys() { grep -o '^{"key":{[^}]*}' "$1" | sort -u; }

# Prints a random time of up to $1 milliseconds, in seconds.
random_s() {
  od -An -N2 -tu2 /dev/urandom | awk -v most="$1" '{ printf "%.3f", $1 / 65536 * most / 1000 }'
}

# Runs switchback-bench with the rest of the arguments, and kills it after at most $1 ms. Counts the
# commands that were killed.
kill_within() {
  most=$1
  shift
  started=$((started + 1))
  timeout -s KILL "$(random_s "$most")" "$program" "$@" >"$work/out" 2>&1
  code=$?
  # timeout(1) exits with 137 after it has killed the command with SIGKILL.
  [ $code -eq 137 ] && killed=$((killed + 1))
}

fail() {
  wrong=$((wrong + 1))
  echo "$0: $*" >&2
}

shape() {
  od -An -N3 -tu1 /dev/urandom | awk '{ printf "%d,%d,%d", 1 + $1 % 32, 16 + $2, 16 + $3 }'
}

quick="--threads 1 --effort quick --max-candidates 2 --quiet"
# shellcheck disable=SC2086 # $quick is a list of words
"$program" tune --shape 3,16,24 $quick --device cpu >/dev/null 2>&1 || {
  echo "$0: the first tune failed" >&2
  exit 1
}
file=$(find "$work/cache/v1" -name '*.jsonl')
# Makes another cache to import, with problems that the first cache lacks.
# shellcheck disable=SC2086
"$program" tune --cache "$work/other" --shape 5,20,28 $quick --device cpu >/dev/null 2>&1

i=0
while [ "$i" -lt "$count" ]; do
  i=$((i + 1))
  keys "$file" >"$work/before"
  if [ $((i % 2)) -eq 0 ]; then
    # shellcheck disable=SC2086
    kill_within 600 tune --shape "$(shape)" $quick --device cpu
  else
    kill_within 60 cache import "$work/other" --device cpu --threads 1
  fi
  keys "$file" >"$work/after"
  [ "$(comm -23 "$work/before" "$work/after" | wc -l)" -eq 0 ] || fail "command $i: problems are gone"
  "$program" cache verify --device cpu --threads 1 >"$work/out" 2>&1 ||
    fail "command $i: $(cat "$work/out")"
done

echo "stress_cache: $started started, $killed killed, $(keys "$file" | wc -l) problems, $wrong wrong"
[ "$wrong" -eq 0 ]
