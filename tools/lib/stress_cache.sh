#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kills commands that write to a tuning cache (tune, prune, import, merge, export) at random times
# and compares bytes: no valid line that was there before may be lost or changed, and no file that
# is replaced may be anything but wholly old or wholly new.
#
#   tools/lib/stress_cache.sh build/release/bin/switchback-bench [COUNT]
#
# COUNT commands (default 50) are started and killed. Prints one line; exit code 1 if a line was
# lost, 2 on a usage error.
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

started=0 killed=0 lost=0 torn=0 refused=0

# Which of the lines of $1 are not in $2: valid ones end with their checksum.
missing_lines() {
  grep -a '"crc32":"[0-9a-f]\{8\}"}$' "$1" | sort -u >"$work/before.lines"
  sort -u "$2" >"$work/after.lines"
  comm -23 "$work/before.lines" "$work/after.lines" | wc -l
}

# A random number of milliseconds up to $1, in seconds.
random_s() {
  od -An -N2 -tu2 /dev/urandom | awk -v most="$1" '{ printf "%.3f", $1 / 65536 * most / 1000 }'
}

# Runs the rest of its arguments and kills them after at most $1 ms. Counts those that were killed.
kill_within() {
  most=$1
  shift
  started=$((started + 1))
  timeout -s KILL "$(random_s "$most")" "$program" "$@" >"$work/out" 2>&1
  code=$?
  # timeout(1) that kills with SIGKILL ends in the same way.
  [ $code -eq 137 ] && killed=$((killed + 1))
}

fail() {
  lost=$((lost + 1))
  echo "$0: $*" >&2
}

shape() {
  od -An -N3 -tu1 /dev/urandom | awk '{ printf "%d,%d,%d", 1 + $1 % 32, 16 + $2, 16 + $3 }'
}

quick="--threads 1 --effort quick --max-candidates 2 --quiet"
# shellcheck disable=SC2086 # words of options
"$program" tune --shape 3,16,24 $quick --device cpu >/dev/null 2>&1 || {
  echo "$0: the first tune failed" >&2
  exit 1
}
file=$(find "$work/cache/v1" -name tune.jsonl)
"$program" cache export "$work/other.jsonl" --in-doubt --device cpu --threads 1 >/dev/null

i=0
while [ "$i" -lt "$count" ]; do
  i=$((i + 1))
  cp "$file" "$work/before"
  case $((i % 5)) in
    0) # Superseded lines may go, winners may not: they are what an export has.
      "$program" cache export "$work/winners.before" --winners --in-doubt --force --device cpu --threads 1 \
        >/dev/null
      kill_within 60 cache prune --samples --device cpu --threads 1
      "$program" cache export "$work/winners.after" --winners --in-doubt --force --device cpu --threads 1 \
        >/dev/null
      cmp -s "$work/winners.before" "$work/winners.after" || fail "prune $i: winners changed"
      ;;
    1)
      # shellcheck disable=SC2086
      kill_within 600 tune --shape "$(shape)" $quick --device cpu
      head -c "$(wc -c <"$work/before")" "$file" | cmp -s - "$work/before" ||
        fail "tune $i: what was there is not a prefix of what is"
      ;;
    2)
      kill_within 60 cache import "$work/other.jsonl"
      [ "$(missing_lines "$work/before" "$file")" -eq 0 ] || fail "import $i: lines are gone"
      ;;
    3)
      cp "$work/other.jsonl" "$work/merged"
      kill_within 60 cache merge "$work/merged" "$work/other.jsonl" "$work/cache" --force
      [ "$(missing_lines "$work/other.jsonl" "$work/merged")" -eq 0 ] ||
        fail "merge $i: lines are gone"
      cmp -s "$work/before" "$file" || fail "merge $i: the cache changed"
      ;;
    4)
      rm -f "$work/exported"
      kill_within 60 cache export "$work/exported" --in-doubt --device cpu --threads 1
      if [ -e "$work/exported" ]; then
        [ "$(missing_lines "$work/exported" "$file")" -eq 0 ] || fail "export $i: not whole"
      fi
      cmp -s "$work/before" "$file" || fail "export $i: the cache changed"
      ;;
  esac
  # A torn tail of the last append is all that may be wrong.
  bad=$(grep -avc '"crc32":"[0-9a-f]\{8\}"}$' "$file")
  [ "$bad" -gt "$torn" ] && torn=$bad
  "$program" cache list --device cpu --threads 1 >/dev/null 2>&1 || refused=$((refused + 1))
done

echo "stress_cache: $started started, $killed killed, $lost lost or changed," \
  "at most $torn torn lines at once, $refused refused by 'cache list'"
[ "$lost" -eq 0 ] && [ "$refused" -eq 0 ]
