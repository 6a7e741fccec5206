#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/gpu-check on the emulated device: its options, and a dry run of all of it.
# usage: gpu_check.sh TOOL PROGRAMS BENCH OUT
set -eu

tool=$1
SWITCHBACK_BIN=$2
SWITCHBACK_BENCH=$3
out=$4
export SWITCHBACK_BIN SWITCHBACK_BENCH
SWITCHBACK_CUBLASLT=none # the emulated device has its own
export SWITCHBACK_CUBLASLT
rm -rf "$out"

# expect STATUS TEXT ARGUMENTS...: runs tools/gpu-check and requires this exit status and this text in its
# output.
expect() {
  wanted=$1
  text=$2
  shift 2
  status=0
  said=$(sh "$tool" "$@" 2>&1) || status=$?
  if [ "$status" -ne "$wanted" ]; then
    printf '%s\ngpu-check %s: exit status %s, not %s\n' "$said" "$*" "$status" "$wanted"
    exit 1
  fi
  case $said in
    *"$text"*) ;;
    *)
      printf '%s\ngpu-check %s: says nothing of "%s"\n' "$said" "$*" "$text"
      exit 1
      ;;
  esac
}

expect 0 'sanitizer-racecheck' --help
expect 2 'no folder to write to'
expect 2 '--only sweep: there is no such step; the steps are info kernels' "$out" --only info sweep
expect 2 '--only needs the name of a step' "$out" --only --quick
expect 2 '--deadline soon: it must be a time such as 90' "$out" --deadline soon
expect 2 "unknown argument '--fast'" "$out" --fast
expect 1 'no use of emulated:7 here' "$out" --device emulated:7 --only info
# The deadline is too short for any step, so no step begins.
expect 3 'not begun        verify: it may take 90 s, and' "$out" --device emulated:0 --only info,verify --deadline 4s
# On the emulated device, all of verify takes longer than 6 s.
expect 3 'not ended        verify: ' "$out" --device emulated:0 --only verify --deadline 6s
expect 0 'all checks passed on emulated:0' "$out" --device emulated:0 --dry-run --only verify
grep -q 'not begun        info' "$out/summary.txt" || {
  echo 'a later call for some steps has removed the summary of an earlier one'
  exit 1
}

expect 0 'all checks passed on emulated:0' "$out" --device emulated:0 --dry-run --deadline 1h
cat "$out/summary.txt"
for step in $(sh "$tool" --help | sed -n '/Steps:$/,/^kernels tries/p' | sed '1d;$d'); do
  grep -Eq "^passed +[0-9]+ s  $step\$" "$out/summary.txt" || {
    echo "the dry run has not passed $step"
    exit 1
  }
done
# The sweep of large products has rows of the fused engine, the bf16 product and cuBLASLt.
for word in fused bf16 cublaslt; do
  grep -q "\"name\":\"$word" "$out/sweep-large.jsonl" || grep -q "\"variant\":\"$word" "$out/sweep-large.jsonl" || {
    echo "no row of the sweep is of $word"
    exit 1
  }
done
# The summary names kernels that were right on 9.0 and that no record covers: stand-ins for the fused kernels,
# of products and of grouped products with one scale per group.
for words in 'gemm_int8 fused .*mc=128' 'grouped_int8 fused .*one scale of each group'; do
  grep -q "^seen on 9.0 .*$words" "$out/summary.txt" || {
    echo "the summary has no line of a kernel that was right and in no record: $words"
    exit 1
  }
done
# Committed records cover all kernels of int8 dW, so the summary does not name them.
if grep -q '^seen on .*gemm_blockwise' "$out/summary.txt"; then
  echo "the summary names a kernel of int8 dW, which a record covers"
  exit 1
fi
# The sweep of int8 dW has rows of all its kernels.
for word in mma wgmma dp4a; do
  grep -q "\"name\":\"$word" "$out/sweep-dw.jsonl" || {
    echo "no row of int8 dW is of $word"
    exit 1
  }
done
