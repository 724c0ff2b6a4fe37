#!/usr/bin/env bash
# The whole test suite. Installs what is missing, builds, and runs:
#
#   tests/run.sh           unit, mpi and end-to-end tests; unit tests under ASan + UBSan; what has
#                          threads under TSan; a few seconds of each fuzz target
#   tests/run.sh --quick   unit, mpi and end-to-end tests
#
# The last line is "N passed, N failed"; the exit code is 0 if nothing failed. It can be run again:
# only what changed is built again.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

jobs=$(nproc)
fuzz_seconds=5
unit_programs=(base_test model_test device_test comm_test offload_test stage_test plan_test job_test
  cli_test standin_test cuda_device_test cuda_rows_test cuda_attention_test cuda_engine_test nccl_transport_test)
# Test programs whose subject has threads; and whole jobs with their stages as threads.
tsan_programs=(base_test comm_test device_test offload_test stage_test job_test
  standin_test cuda_device_test nccl_transport_test)
tsan_jobs=(
  "unit/plan/plan_test Measure*:MeasureTiming*"
  "cuda/cuda_engine_test */CudaSchedule.EventsAreItsDependencies/3"
  "e2e/invariance_test *.NumberOfStages"
  "e2e/placement_test *.DelaysAndScarcePages:*.EachStageItsOwnPolicy:*.CpuAttention"
  "e2e/compression_test *.SameBytesWithDelays"
)

passed=0
failed=0
budget=()

# step MINUTES NAME FUNCTION: runs it, and notes how long it took. A step that breaks off counts as a
# failure, and the next one runs.
step() {
  local minutes=$1 name=$2 work=$3 start=$SECONDS result=ok
  printf '\n== %s\n' "$name"
  set +e
  (set -e; "$work")
  local code=$?
  set -e
  if [[ $code -ne 0 ]]; then
    result=FAILED
  fi
  budget+=("$(awk -v name="$name" -v s=$((SECONDS - start)) -v limit="$minutes" -v result="$result" \
    'BEGIN { printf "%-46s %6.1f %6.1f  %s", name, s / 60, limit, result }')")
  count_results "$code"
}

# ctest's and the fuzzers' verdicts of the step that ended; a step that failed before it had one is a
# failure of its own.
count_results() {
  local code=$1 step_failed=0 line
  while read -r line; do
    passed=$((passed + ${line% *}))
    step_failed=$((step_failed + ${line#* }))
  done <"$verdicts"
  : >"$verdicts"
  if [[ $code -ne 0 && $step_failed -eq 0 ]]; then
    step_failed=1
  fi
  failed=$((failed + step_failed))
}

build() {
  local preset=$1
  shift
  cmake --preset "$preset" -Wno-dev "${configure_options[@]}" >"$logs/configure-$preset.log" 2>&1 ||
    { cat "$logs/configure-$preset.log"; return 1; }
  cmake --build --preset "$preset" --parallel "$jobs" "$@"
}

# run_ctest PRESET OPTIONS...
run_ctest() {
  local preset=$1 code=0
  shift
  ctest --preset "$preset" --parallel "$jobs" --no-tests=error "$@" | tee "$logs/ctest.log" || code=$?
  awk '/ tests passed, .* tests failed out of / {
         sub(/.*passed, /, ""); print $NF - $1, $1 }' "$logs/ctest.log" >>"$verdicts"
  return "$code"
}

# run_program COMMAND...: counts as one test.
run_program() {
  if "$@"; then
    echo '1 0' >>"$verdicts"
  else
    echo '0 1' >>"$verdicts"
    return 1
  fi
}

install_packages() {
  launch/install-packages.sh "${install_options[@]}"
}

build_main() {
  build "$main_preset"
}

test_main() {
  run_ctest "$main_preset"
}

test_asan() {
  build asan --target "${unit_programs[@]}"
  run_ctest asan --label-regex unit
}

test_tsan() {
  # Threads of the stand-in for CUDA end by themselves, and nobody may be left to join the last ones.
  export TSAN_OPTIONS="ignore_noninstrumented_modules=1 report_thread_leaks=0 suppressions=$PWD/tests/sanitizers/tsan.supp"
  local jobs_of_tsan=("${tsan_jobs[@]%% *}")
  build tsan --target "${tsan_programs[@]}" "${jobs_of_tsan[@]##*/}"
  local pattern
  pattern=$(IFS='|'; echo "^(${tsan_programs[*]})\$")
  run_ctest tsan --tests-regex "$pattern"
  local job
  for job in "${tsan_jobs[@]}"; do
    run_program "build/tsan/tests/${job%% *}" --gtest_filter="${job#* }"
  done
}

test_fuzz() {
  build fuzz
  local target code=0
  for target in build/fuzz/tests/fuzz/fuzz_*; do
    [[ -f $target && -x $target ]] || continue
    local corpus="build/fuzz/corpus/${target##*/}"
    mkdir -p "$corpus"
    if "$target" -max_total_time="$fuzz_seconds" -rss_limit_mb=4096 -print_final_stats=0 \
      -artifact_prefix="$corpus-" "$corpus" >"$logs/fuzz.log" 2>&1; then
      echo "${target##*/}: $(tail -n 1 "$logs/fuzz.log")"
      echo '1 0' >>"$verdicts"
    else
      tail -n 40 "$logs/fuzz.log"
      echo '0 1' >>"$verdicts"
      code=1
    fi
  done
  return "$code"
}

main_preset=ci
install_options=(--dev)
configure_options=()
case ${1:-} in
  '') ;;
  --quick)
    main_preset=host
    install_options=()
    ;;
  *)
    echo "usage: tests/run.sh [--quick]" >&2
    exit 2
    ;;
esac

logs=$(mktemp -d)
trap 'rm -rf -- "$logs"' EXIT
verdicts=$logs/verdicts
: >"$verdicts"

step 3 "packages" install_packages
step 10 "build ($main_preset)" build_main
step 10 "unit, mpi and end-to-end tests" test_main
if [[ $main_preset == ci ]]; then
  # The sanitizers know nothing of Open MPI: these builds do without it.
  configure_options=(-DSTAGECOACH_WITH_MPI=OFF)
  step 12 "unit tests under ASan and UBSan" test_asan
  step 13 "tests with threads under TSan" test_tsan
  if command -v clang++ >/dev/null && [[ -e tests/fuzz/CMakeLists.txt ]]; then
    step 6 "fuzz targets, $fuzz_seconds s each" test_fuzz
  fi
fi

printf '\n%-46s %6s %6s\n' step minutes budget
printf '%s\n' "${budget[@]}"
printf '%-46s %6s\n\n' "all" "$(awk -v s=$SECONDS 'BEGIN { printf "%.1f", s / 60 }')"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
