#!/usr/bin/env bash
# Two stages on two cores against one stage on one core: the whole job, dummy weights, one thread a
# stage. The limit is what the two cores give to two jobs that have nothing to do with each other.
# Runs of all kinds take turns; prints every run, the medians and their ratios.
#
#   bench/stages.sh [REPEATS] [options of run]      e.g. bench/stages.sh 5 --gpu-batch-size 16
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

repeats=${1:-5}
shift || true

# 288 requests of 16 to 79 prompt tokens and 24 new ones.
awk 'BEGIN {
  for (i = 0; i < 288; ++i) {
    printf "{\"id\":%d,\"max_new_tokens\":24,\"ignore_eos\":true,\"prompt_token_ids\":[2", i
    for (t = 1; t < 16 + (i * 29) % 64; ++t) printf ",%d", 3 + (i * 131 + t * 17) % 4000
    print "]}"
  }
}' >"$work/prompts.jsonl"

job=(run --dummy 1 --spec "$here/bench/data/stages.ini" --prompts "$work/prompts.jsonl" --overwrite
  --threads 1 --num-gpu-batches 1 "$@")
# The program takes an option once, so a default is left out where the caller gives another value.
[[ " $* " == *" --gpu-batch-size "* ]] || job+=(--gpu-batch-size 8)
[[ " $* " == *" --prefill-piece "* ]] || job+=(--prefill-piece 64)

# Prints generated tokens a second.
measure() {
  local log=$work/log
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  sed -n 's/.* \([0-9.]*\) generated tokens\/s$/\1/p' "$log" | tail -n 1
}

one_stage() {
  measure taskset --cpu-list 0 "$stagecoach" "${job[@]}" --output "$work/one.jsonl" \
    --inner-iterations 3
}

two_ranks() {
  measure mpirun -n 2 --bind-to core "$stagecoach" "${job[@]}" --output "$work/two.jsonl"
}

two_threads() {
  measure "$stagecoach" "${job[@]}" --output "$work/threads.jsonl" --stages 2
}

# Both of two one-stage jobs at once, each on a core of its own: their tokens a second together.
two_jobs() {
  local core
  for core in 0 1; do
    taskset --cpu-list "$core" "$stagecoach" "${job[@]}" --output "$work/job$core.jsonl" \
      --inner-iterations 3 >"$work/log$core" 2>&1 &
  done
  wait
  sed -n 's/.* \([0-9.]*\) generated tokens\/s$/\1/p' "$work/log0" "$work/log1" |
    awk '{ sum += $1 } END { print sum }'
}

for ((i = 1; i <= repeats; ++i)); do
  one_stage | tee -a "$work/one" | sed "s/^/run $i: one stage, one core           /"
  two_ranks | tee -a "$work/mpi" | sed "s/^/run $i: two MPI ranks, two cores      /"
  two_jobs | tee -a "$work/limit" | sed "s/^/run $i: two independent jobs          /"
  two_threads | tee -a "$work/loopback" | sed "s/^/run $i: two threads, two cores        /"
done
sort "$work/one.jsonl" | cmp - <(sort "$work/two.jsonl") && echo "the results are the same bytes"

one=$(median "$work/one")
for kind in mpi loopback limit; do
  two=$(median "$work/$kind")
  echo "$kind: $two generated tokens/s against $one, ratio $(awk "BEGIN { printf \"%.2f\", $two / $one }")"
done
