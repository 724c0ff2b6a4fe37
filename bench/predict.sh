#!/usr/bin/env bash
# How well a run is predicted: policies over all tiers, each simulated from a profile of this machine
# and then run; and the policy that 'stagecoach plan' chooses. A profile is measured before every round, since machines that others share change.
# With LIMIT, like 900M, the disk of FOLDER is throttled to so many bytes a second by a cgroup (root).
# Dummy weights; makes stores of up to 3 GB in FOLDER.
#
#   bench/predict.sh FOLDER [ROUNDS] [LIMIT] [MODELS] [STAGES]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/predict.sh FOLDER [ROUNDS] [LIMIT] [MODELS] [STAGES]}
rounds=${2:-3}
limit=${3:-}
read -ra models <<<"${4:-opt-125m opt-1.3b}"
read -ra stage_counts <<<"${5:-1 2}"
need jq
group=
[[ -z $limit ]] || throttled_group "$folder" "$limit"

# What each policy gives to the tiers, and its other options.
names=("resident" "half in DRAM" "from disk" "three tiers" "cache on CPU" "cache copied" "cache on disk"
  "everything mixed" "int4" "planned")
declare -A policies=(
  ["resident"]="--percent 100 0 100 0 100 0"
  ["half in DRAM"]="--percent 50 50 100 0 100 0"
  ["from disk"]="--percent 0 0 100 0 100 0"
  ["three tiers"]="--percent 30 40 100 0 100 0"
  ["cache on CPU"]="--percent 100 0 0 100 100 0 --page-tokens 64"
  ["cache copied"]="--percent 100 0 0 100 100 0 --cpu-attention off"
  ["cache on disk"]="--percent 100 0 0 0 100 0 --page-tokens 64"
  ["everything mixed"]="--percent 20 30 25 25 50 25"
  ["int4"]="--percent 0 0 0 100 100 0 --compress-cache int4 --page-tokens 64"
)

# The prompts and blocks of a model: so many that a run takes some ten seconds.
declare -A jobs=([opt-125m]="96 64 16" [opt-350m]="48 64 16" [opt-1.3b]="32 32 8")
blocks=(--gpu-batch-size 8 --num-gpu-batches 4 --prefill-piece 256)

# store NAME: f16 weights, or packed ones for int4.
store_of() {
  local model=$1 name=$2
  if [[ $name == int4 ]]; then echo "$folder/bench-$model-int4.h5"; else echo "$folder/bench-$model.h5"; fi
}

# launch STAGES COMMAND...: as a job of this machine.
launch() {
  local stages=$1
  shift
  if [[ $stages == 1 ]]; then in_group "$group" "$@"; else
    in_group "$group" "$here/launch/local.sh" -n "$stages" "${@:2}"
  fi
}

measure() {
  local stages=$1 model=$2
  launch "$stages" "$stagecoach" profile --seconds "${PROFILE_SECONDS:-0.5}" --out "$work/profile" --overwrite --folder "$folder" \
    --spec "$here/configs/models/$model.ini" >"$work/profile.log" 2>&1 ||
    { cat "$work/profile.log" >&2; return 1; }
  cat "$work"/profile/*.ini >"$work/node.ini"
}

# predicted STAGES STORE OPTIONS...: tokens a second.
predicted() {
  "$stagecoach" simulate --model "$2" --profile "$work/node.ini" --stages "$1" --json \
    --prompts "$work/prompts.jsonl" "${@:3}" | jq .tokens_per_second
}

# The same for what the planner chooses; makes the job file.
planned() {
  "$stagecoach" plan --model "$2" --profile "$work/node.ini" --stages "$1" --offload-dir "$folder" \
    --prompts "$work/prompts.jsonl" --out "$work/job.ini" --overwrite >"$work/plan.log"
  sed -n 's/^predicted: \([0-9.]*\) generated.*/\1/p' "$work/plan.log"
}

measured() {
  run_job "$work/log" launch "$1" "$stagecoach" run --model "$2" --prompts "$work/prompts.jsonl" \
    --output "$work/out.jsonl" --overwrite "${@:3}"
  tokens_per_second "$work/log"
}

for model in "${models[@]}"; do
  dummy_store "$(store_of "$model" f16)" "$model"
  dummy_store "$(store_of "$model" int4)" "$model" --quantize int4
done
for ((round = 1; round <= rounds; ++round)); do
  for model in "${models[@]}"; do
    read -r count prompt generated <<<"${jobs[$model]}"
    requests "$count" "$prompt" "$generated" >"$work/prompts.jsonl"
    for stages in "${stage_counts[@]}"; do
      measure "$stages" "$model"
      for name in "${names[@]}"; do
        read -ra options <<<"${policies[$name]:-} --offload-dir $folder"
        store=$(store_of "$model" "$name")
        if [[ $name == planned ]]; then
          p=$(planned "$stages" "$store")
          options=(--config "$work/job.ini")
        else
          options+=("${blocks[@]}")
          p=$(predicted "$stages" "$store" "${options[@]}")
        fi
        m=$(measured "$stages" "$store" "${options[@]}")
        echo "round $round: $model, $stages stages, $name: predicted $p, measured $m" >&2
        echo "$p" >>"$work/p.$model.$stages.$name"
        echo "$m" >>"$work/m.$model.$stages.$name"
      done
    done
  done
done

printf '| model | stages | policy | predicted tokens/s | measured | error |\n'
printf '| --- | --- | --- | ---: | ---: | ---: |\n'
for model in "${models[@]}"; do
  for stages in "${stage_counts[@]}"; do
    for name in "${names[@]}"; do
      p=$(median "$work/p.$model.$stages.$name") m=$(median "$work/m.$model.$stages.$name")
      awk -v p="$p" -v m="$m" -v row="$model | $stages | $name" 'BEGIN {
        printf "| %s | %.4g | %.4g | %+.0f %% |\n", row, p, m, 100 * (p / m - 1)
      }'
      awk -v p="$p" -v m="$m" 'BEGIN { e = 100 * (p / m - 1); print e < 0 ? -e : e }' >>"$work/errors"
    done
  done
done
printf '\nerror of the medians: median %.1f %%, worst %.1f %%\n' "$(median "$work/errors")" \
  "$(sort -g "$work/errors" | tail -n 1)"
