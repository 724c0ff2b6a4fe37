#!/usr/bin/env bash
# The check on a machine with a GPU: builds the CUDA device's tests with nvcc, runs them, compares
# whole jobs on the GPU with the same jobs on the host, looks with compute-sanitizer, and prints one
# table. The exit code is 0 if everything that ran passed, 1 otherwise, 2 without a GPU.
#
#   tests/gpu/check.sh [--build FOLDER] [--program FILE] [--only TEXT] [--no-sanitizer] [--standin]
#   tests/gpu/check.sh --bundle FILE.tar.gz [--no-program]
#
# --bundle packs what another machine needs: there, unpack and run tests/gpu/check.sh. It wants
# nvcc 13, a C++20 compiler, cuBLAS and a driver, and neither CMake nor any library. --program is the
# stagecoach program for the whole jobs (that of the bundle; or build/cuda/src/stagecoach). --only
# runs the checks whose names hold TEXT. --standin tries the check itself, without a GPU: the same
# sources against tests/support/cuda_standin; the program must be one with the stand-in, too.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
export PATH=$PATH:/usr/local/cuda/bin
# A GPU is told apart from one that is busy with something else by a time that is long for any test.
test_seconds=${STAGECOACH_CHECK_SECONDS:-900}

usage() {
  sed -n '6,7s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
build=$root/build/gpu-check
program=
bundle=
with_program=1
only=
sanitizer=1
standin=
while [[ $# -gt 0 ]]; do
  case $1 in
    --no-program) with_program= ;;
    --no-sanitizer) sanitizer= ;;
    --standin) standin=1 ;;
    --build | --program | --bundle | --only)
      [[ $# -ge 2 ]] || usage
      declare "${1#--}=$2"
      shift
      ;;
    *) usage ;;
  esac
  shift
done

# --- packing ---

# The program and every library that it needs, but for the C library's own and NVIDIA's.
pack_program() {
  local folder=$1 library path
  cmake -S "$root" -B "$root/build/cuda-portable" -G Ninja -Wno-dev \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSTAGECOACH_WITH_CUDA=ON -DSTAGECOACH_WITH_NCCL=OFF \
    -DSTAGECOACH_WITH_MPI=OFF -DSTAGECOACH_BUILD_TESTS=OFF -DCMAKE_SKIP_RPATH=ON
  cmake --build "$root/build/cuda-portable" --target stagecoach --parallel "$(nproc)"
  mkdir -p "$folder/bin" "$folder/lib"
  cp "$root/build/cuda-portable/src/stagecoach" "$folder/bin/"
  strip "$folder/bin/stagecoach"
  cp "$root/tests/gpu/with_libraries.sh" "$folder/stagecoach"
  ldd "$folder/bin/stagecoach" | while read -r library _ path _; do
    case $library in
      linux-vdso.* | /*ld-linux* | libc.so.* | libm.so.* | libdl.so.* | librt.so.* | \
        libpthread.so.* | libresolv.so.* | libcuda* | libcublas*) ;;
      *) cp -L -- "$path" "$folder/lib/$library" ;;
    esac
  done
}

pack() {
  local stage name
  stage=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf -- '$stage'" EXIT
  name=$stage/stagecoach-gpu
  mkdir -p "$name/third_party/include" "$name/third_party/lib"
  (cd "$root" && git ls-files -z src/base src/device tests/cuda tests/gpu tests/support \
    'tests/unit/device/*.hpp' bench/gpu \
    bench/common.sh launch/mpi-settings.sh configs/models examples LICENSE |
    xargs -0 cp --parents -t "$name")
  cp -r /usr/src/googletest "$name/third_party/"
  cp -r /usr/include/fmt /usr/include/xxhash.h "$name/third_party/include/"
  if [[ -d /usr/include/hwy ]]; then
    cp -r /usr/include/hwy "$name/third_party/include/"
    cp -L "$(ldconfig -p | awk '$1 == "libhwy.so.1" { print $NF; exit }')" "$name/third_party/lib/"
  fi
  [[ -z $with_program ]] || pack_program "$name/program"
  tar -C "$stage" -czf "$bundle" stagecoach-gpu
  echo "$bundle: $(du -h -- "$bundle" | cut -f 1); unpack it and run stagecoach-gpu/tests/gpu/check.sh"
}

if [[ -n $bundle ]]; then
  bundle=$(realpath -m -- "$bundle")
  pack
  exit 0
fi

# --- checking ---

logs=$build/logs
rm -rf -- "$logs"
mkdir -p "$logs"
lines=()
failures=0

line() {
  printf -v "lines[${#lines[@]}]" '%-44s %-8s %8s  %s' "$1" "$2" "$3" "${4:-}"
}
# check NAME COMMAND...: one line of the table; the log of what fails is shown.
check() {
  [[ $1 != *"$only"* ]] || prepare "$@"
}
# The same, whatever --only says: others need it.
prepare() {
  local name=$1 log=$logs/${1//[^A-Za-z0-9_]/-}.log start=$SECONDS code=0
  shift
  echo "== $name"
  timeout "$test_seconds" "$@" >"$log" 2>&1 || code=$?
  if [[ $code -eq 0 ]]; then
    line "$name" ok $((SECONDS - start)) "$(summary "$log")"
    return 0
  fi
  failures=$((failures + 1))
  local why="exit code $code"
  [[ $code -ne 124 ]] || why="no end after $test_seconds s"
  line "$name" FAILED $((SECONDS - start)) "$why; $log"
  tail -n 40 "$log"
}
skip() {
  [[ $1 != *"$only"* ]] || line "$1" skipped - "$2"
}
# How many tests a GoogleTest program ran; a check's last word otherwise.
summary() {
  sed -n 's/^\[  PASSED  \] //p; s/^result: //p' "$1" | tail -n 1
}
# A test program that runs no test has checked nothing.
run_tests() {
  "$@" >"$logs/tests.out" 2>&1 || { cat "$logs/tests.out"; return 1; }
  cat "$logs/tests.out"
  grep -qE '^\[  PASSED  \] [1-9]' "$logs/tests.out"
}
export -f run_tests
export logs

report() {
  printf '\n%-44s %-8s %8s\n' check result seconds
  printf '%s\n' "${lines[@]}"
  if [[ $failures -gt 0 ]]; then
    echo "$failures checks failed"
    exit 1
  fi
  echo "all checks that ran passed"
}

if [[ -n $standin ]]; then
  echo "no GPU is used: the stand-in for CUDA, on the CPU"
  build_options=(--standin)
elif ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "check.sh: nvidia-smi finds no GPU on this machine; nothing was checked" >&2
  exit 2
else
  nvidia-smi --query-gpu=index,name,driver_version,memory.total,compute_cap --format=csv
  nvcc --version | tail -n 2
  build_options=(--architectures native)
fi

prepare build "$root/tests/gpu/build.sh" "$build" "${build_options[@]}"
[[ $failures -eq 0 ]] || report
while IFS=: read -r name why; do
  skip "$name" "${why# }"
done <"$build/left-out"

tests=("$build"/bin/*_test)
for test in "${tests[@]}"; do
  check "$(basename -- "$test")" bash -c 'run_tests "$@"' run_tests "$test"
done
check "gpu_bench --small" "$build/bin/gpu_bench" --small --device-mem 256MiB --repeats 1 --seconds 0

# Whole jobs.
if [[ -z $program ]]; then
  for candidate in "$root/program/stagecoach" "$root/build/cuda/src/stagecoach"; do
    if [[ -x $candidate ]]; then
      program=$candidate
      break
    fi
  done
fi
# job NAME DEVICE OPTIONS...: greedy tokens of the example prompts, in order.
job() {
  local output=$jobs/$1-$2.jsonl
  "$program" run --model "$model" --prompts "$jobs/prompts.jsonl" --output "$output" \
    --overwrite --ordered --logprobs 5 --device "$2" --offload-dir "$jobs" "${@:3}"
}
# same_tokens NAME OPTIONS...: on the GPU and on the host.
same_tokens() {
  local name=$1
  shift
  job "$name" host "$@"
  job "$name" cuda "$@"
  "$root/tests/gpu/compare_results.py" "$jobs/$name-host.ordered.jsonl" \
    "$jobs/$name-cuda.ordered.jsonl"
}
export -f job same_tokens
jobs=$build/jobs model=$build/jobs/tiny-opt.h5
export root jobs model program
mkdir -p "$jobs"

# check_jobs NAME OPTIONS...
check_jobs() {
  check "jobs: $1" bash -c 'set -euo pipefail; same_tokens "$@"' same_tokens "${1//[^a-z0-9]/-}" "${@:2}"
}
if [[ -z $program ]]; then
  skip "jobs: all" "no stagecoach program in the bundle, nor in build/cuda"
elif ! command -v python3 >/dev/null; then
  skip "jobs: all" "comparing results needs python3"
elif ! "$program" --version >"$logs/version.log" 2>&1; then
  skip "jobs: all" "$program does not start here: $(tail -n 1 "$logs/version.log")"
else
  prepare "jobs: the example model" "$program" convert --from "$root/examples/tiny-opt" \
    --to "$model" --overwrite
  # Of a draw, a difference of one rounding may make another token.
  grep -v temperature "$root/examples/prompts.jsonl" >"$jobs/prompts.jsonl"
  few=(--gpu-batch-size 4 --num-gpu-batches 2)
  check_jobs "one stage"
  for stages in 2 3 4; do
    check_jobs "$stages stages" --stages "$stages" "${few[@]}"
  done
  check_jobs "pieces of a prompt" --prefill-piece 5 --page-tokens 32 "${few[@]}"
  check_jobs "weights in dram" "${few[@]}" --percent 0 100 100 0 100 0
  check_jobs "weights on disk" "${few[@]}" --percent 0 0 100 0 100 0
  for attention in on off; do
    check_jobs "cache in dram, cpu attention $attention" "${few[@]}" --percent 100 0 0 100 100 0 \
      --cpu-attention "$attention"
  done
  check_jobs "cache on disk" "${few[@]}" --percent 100 0 0 0 100 0
  check_jobs "activations in dram and on disk" "${few[@]}" --percent 100 0 100 0 0 50
  check_jobs "everything in parts" --stages 2 "${few[@]}" --percent 40 30 40 30 50 50
  check_jobs "one step after the other" "${few[@]}" --percent 40 30 40 30 50 50 --no-overlap
  check_jobs "int4 weights and cache" "${few[@]}" --compress-weights int4 --compress-cache int4
  check_jobs "int8 weights and cache, in parts" --stages 2 "${few[@]}" --compress-weights int8 \
    --compress-cache int8 --percent 50 50 40 60 100 0
fi

if [[ -n $standin ]]; then
  skip compute-sanitizer "the stand-in is no GPU"
elif [[ -z $sanitizer ]]; then
  skip compute-sanitizer "--no-sanitizer"
elif ! command -v compute-sanitizer >/dev/null; then
  skip compute-sanitizer "not on this machine"
else
  # gpu_bench --small runs every operation once on small shapes.
  for tool in memcheck racecheck initcheck; do
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 99 \
      "$build/bin/gpu_bench" --small --device-mem 256MiB --repeats 1 --seconds 0
    for test in "${tests[@]}"; do
      check "$tool $(basename -- "$test")" compute-sanitizer --tool "$tool" --error-exitcode 99 \
        "$test" "--gtest_filter=${STAGECOACH_SMALL_TESTS:-*}"
    done
  done
fi
report
