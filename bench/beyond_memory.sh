#!/usr/bin/env bash
# A model three times as large as the memory that the whole job may have (a cgroup's limit): weights
# and KV cache on disk, on one stage and on two. Its tokens must be those of a job without limit.
# Makes a store of 5.3 GB (OPT-2.7B, dummy weights) in FOLDER; needs root and a memory cgroup.
#
#   bench/beyond_memory.sh FOLDER
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/beyond_memory.sh FOLDER}
store=$folder/bench-opt-2.7b.h5
dummy_store "$store" opt-2.7b
limit=$(($(stat -c %s "$store") / 3))
requests 24 40 8 >"$work/prompts.jsonl"
job=(run --model "$store" --prompts "$work/prompts.jsonl" --overwrite --threads 1
  --gpu-batch-size 8 --num-gpu-batches 2 --prefill-piece 128 --inner-iterations 2)

# Makes the cgroup of version 1 or 2; sets where its files are and what they are called.
make_group() {
  if [[ -d /sys/fs/cgroup/memory ]]; then
    group=/sys/fs/cgroup/memory/stagecoach-bench
    limit_file=memory.limit_in_bytes peak_file=memory.max_usage_in_bytes
  else
    group=/sys/fs/cgroup/stagecoach-bench
    limit_file=memory.max peak_file=memory.peak
  fi
  mkdir "$group"
  trap 'rmdir -- "$group"; rm -rf -- "$work"' EXIT
  echo "$limit" >"$group/$limit_file"
}

swap_bytes() {
  if [[ -e $group/memory.swap.current ]]; then
    cat "$group/memory.swap.current"
  else
    awk '$1 == "total_swap" { print $2 }' "$group/memory.stat"
  fi
}

# limited NAME COMMAND...: inside the cgroup.
limited() {
  local name=$1
  shift
  drop_caches
  [[ $peak_file != memory.max_usage_in_bytes ]] || echo 0 >"$group/$peak_file"
  run_job "$work/$name.log" in_group "$group" "$@"
  echo "$name: $(tokens_per_second "$work/$name.log") generated tokens/s," \
    "peak $(($(cat "$group/$peak_file") >> 20)) MiB of $((limit >> 20)) MiB (page cache included)," \
    "swap $(swap_bytes) bytes"
  sed -n 's/.* info: \(memory taken at most.*\|disk: read .*\)/  \1/p' "$work/$name.log"
}

offload=(--percent 0 0 0 0 100 0 --offload-dir "$folder" --cpu-attention off)
run_job "$work/free.log" "$stagecoach" "${job[@]}" --output "$work/free.jsonl"
echo "without a limit: $(tokens_per_second "$work/free.log") generated tokens/s," \
  "model $(($(stat -c %s "$store") >> 20)) MiB"
make_group
limited "one stage" "$stagecoach" "${job[@]}" --output "$work/one.jsonl" "${offload[@]}"
limited "two stages" mpirun -n 2 --bind-to none "$stagecoach" "${job[@]}" \
  --output "$work/two.jsonl" "${offload[@]}"
for run in one two; do
  cmp <(sort "$work/free.jsonl") <(sort "$work/$run.jsonl")
done
echo "the results are the same bytes"
