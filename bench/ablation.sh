#!/usr/bin/env bash
# What each part of the method is worth: OPT-1.3B (dummy weights, store in FOLDER) with budgets that
# hold a part of it, all on, then one thing off at a time. Configurations take turns.
#
#   bench/ablation.sh FOLDER [REPEATS]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/ablation.sh FOLDER [REPEATS]}
repeats=${2:-2}
store=$folder/bench-opt-1.3b.h5
dummy_store "$store" opt-1.3b
requests 64 12 12 >"$work/prompts.jsonl"
job=(run --model "$store" --prompts "$work/prompts.jsonl" --output "$work/out.jsonl" --overwrite
  --threads 1 --prefill-piece 128 --percent 10 40 0 50 100 0 --offload-dir "$folder"
  --device-mem 800MiB --cpu-mem 1400MiB)
blocks=(--gpu-batch-size 16 --num-gpu-batches 4)

declare -A options=(
  ["all on"]="${blocks[*]}"
  ["no overlap"]="${blocks[*]} --no-overlap"
  ["no CPU attention"]="${blocks[*]} --cpu-attention off"
  ["block of one GPU batch"]="--gpu-batch-size 16 --num-gpu-batches 1"
  ["row"]="${blocks[*]} --schedule row"
  ["zigzag"]="${blocks[*]} --schedule zigzag"
  ["flexgen"]="${blocks[*]} --schedule flexgen"
)
names=("all on" "no overlap" "no CPU attention" "block of one GPU batch" zigzag row flexgen)

for ((i = 1; i <= repeats; ++i)); do
  for name in "${names[@]}"; do
    read -ra extra <<<"${options[$name]}"
    run_job "$work/log" "$stagecoach" "${job[@]}" "${extra[@]}"
    tokens_per_second "$work/log" | tee -a "$work/$name" | sed "s/^/run $i: $name: /"
    sort "$work/out.jsonl" >"$work/sorted"
    [[ -e $work/first ]] || cp "$work/sorted" "$work/first"
    cmp "$work/first" "$work/sorted"
  done
done
all=$(median "$work/all on")
printf '\n| configuration | generated tokens/s | of all on |\n| --- | ---: | ---: |\n'
for name in "${names[@]}"; do
  m=$(median "$work/$name")
  printf '| %s | %s | %s |\n' "$name" "$m" "$(ratio "$m" "$all")"
done
