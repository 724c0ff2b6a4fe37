#!/usr/bin/env bash
# A program built with CUDA, on a machine without a GPU: it starts, works on the host, and where it
# is told to use a GPU it ends with exit code 2 and one line. With no driver at all (error 35), and
# with a driver that finds no GPU (error 100; driver_without_gpu.c).
#
#   tests/gpu/check_without_gpu.sh build/cuda/src/stagecoach
set -euo pipefail
program=$(realpath -- "${1:?usage: tests/gpu/check_without_gpu.sh PROGRAM}")
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
spec=$here/../data/tiny-opt-shapes.ini

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
checks=0

fail() {
  echo "check_without_gpu.sh: $*" >&2
  [[ ! -s $work/err ]] || sed 's/^/  stderr: /' "$work/err" >&2
  exit 1
}
# ends CODE COMMAND...: runs it and keeps what it said.
ends() {
  local wanted=$1 code=0
  shift
  "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
  [[ $code -eq $wanted ]] || fail "$* ended with $code instead of $wanted"
  checks=$((checks + 1))
}
says() {
  grep -qF -- "$2" "$work/$1" || fail "did not say on std$1: $2"
  checks=$((checks + 1))
}

# What would keep it from starting where there is no driver, or no toolkit's runtime.
for library in libcuda.so libcudart.so; do
  if readelf -d "$program" | grep -F NEEDED | grep -qF "[$library"; then
    fail "$program wants $library before it can start"
  fi
  checks=$((checks + 1))
done
ends 0 readelf -d "$program"
says out '[libcublas.so'

printf '{"id": 1, "prompt_token_ids": [2, 5, 7], "max_new_tokens": 3}\n' >"$work/prompts.jsonl"
job=("$program" run --dummy 1 --spec "$spec" --prompts "$work/prompts.jsonl" --log-level error)

# with_error NUMBER: what every program must do whose CUDA runtime gives this error.
with_error() {
  ends 0 "$program" --version
  ends 0 "$program" info --devices
  says out 'no usable GPU'
  for device in cuda cuda:0; do
    ends 2 "${job[@]}" --output "$work/none.jsonl" --device "$device"
    says err '--device cuda'
    says err 'no usable GPU'
    [[ $(wc -l <"$work/err") -eq 1 ]] || fail "--device $device gave more than one line"
    [[ ! -s $work/none.jsonl ]] || fail "--device $device wrote results"
  done
  for device in auto host; do
    ends 0 "${job[@]}" --output "$work/$1-$device.jsonl" --device "$device"
    [[ $(wc -l <"$work/$1-$device.jsonl") -eq 1 ]] || fail "--device $device gave no result"
  done
}

if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
  export CUDA_VISIBLE_DEVICES=
  with_error 100
  echo "check_without_gpu.sh: $checks checks passed; this machine has a GPU, which was hidden"
  exit 0
fi
with_error 35
ends 2 "${job[@]}" --output "$work/none.jsonl" --device cuda
says err 'driver version is insufficient'

"${CC:-cc}" -shared -fPIC -O1 -Wall -Wextra "$here/driver_without_gpu.c" -o "$work/libcuda.so.1"
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
with_error 100
ends 2 "${job[@]}" --output "$work/none.jsonl" --device cuda
says err 'no CUDA-capable device'
echo "check_without_gpu.sh: $checks checks passed: no driver (error 35), and no GPU (error 100)"
