#!/usr/bin/env bash
# What this project would do on the FlexGen paper's nodes, by 'stagecoach simulate' with the constants
# of configs/hardware/t4-gcp.ini: with the paper's own policies, with policies of our own, and on 1 to
# 32 nodes. Markdown; needs no GPU and no model.
#
#   bench/paper/ours.sh [paper|175b|scaling]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
need jq
what=${1:-all}
paper=$here/bench/paper/flexgen-paper.json
t4=$here/configs/hardware/t4-gcp.ini

# simulate PROFILE MODEL STAGES REQUESTS OPTIONS...: JSON.
simulate() {
  "$stagecoach" simulate --profile "$1" --spec "$here/configs/models/opt-$2.ini" --stages "$3" \
    --requests "$4" --gen-len 32 --offload-dir . --json "${@:5}"
}

# From simulate's JSON, the columns that all tables have: tokens a second, and per cent of the time
# that the busiest stage's resources work.
# shellcheck disable=SC2016  # the $ are of jq
columns='
  def fixed($n): pow(10; $n) as $f | (. * $f + 0.5 | floor) / $f | tostring;
  . as $all
  | def busy($name): [$all.stages[].busy_seconds[$name]] | max / $all.seconds * 100 | fixed(0);
  [ (.tokens_per_second | fixed(2)), busy("compute"), busy("h2d"), busy("disk read"), busy("cpu") ]
  | join(" | ")'

# Of a row of the paper's, one word a line: its model, stages, requests (twice its batch), blocks
# and the options that hold for every batch. Weights are placed as FlexGen really did (see run.sh),
# but for OPT-175B on one node: half of them in DRAM leaves no room for pages that are being filled and
# f32 activations, 35 % does.
# shellcheck disable=SC2016  # likewise
words='
  def placed: if . == [20, 80] then [8.333, 91.667] elif . == [4, 96] then [0, 100]
    elif . == [0, 50] then [0, 35] else . end;
  [ .model, .gpus, 2 * (.batch | .[0] * .[1] * .[2]), .batch[], .prompt_len,
    "--inner-iterations", .batch[2], "--prompt-len", .prompt_len,
    "--percent", (.percent[0:2] | placed)[], .percent[2:][],
    "--cpu-attention", (if .cpu_attention then "on" else "off" end) ] | .[]'

# papers_row SCHEDULE ROW: the paper's policy. Its block is cut into more, smaller GPU batches: of at
# most 8 whole prompts (zigzag) or 32 sequences (rolling), and further where it does not fit.
papers_row() {
  local schedule=$1 word batch batches least most=32
  local -a w
  mapfile -t w < <(jq -r "$words" <<<"$2")
  batch=${w[3]} batches=${w[4]}
  least=$((batch * batches * w[6] / 32))
  [[ $schedule == rolling ]] || most=8
  [[ ${w[14]} != 100 ]] || most=$batch # nothing is staged on the GPU
  while ((batch > most && batch % 2 == 0)); do
    batch=$((batch / 2)) batches=$((batches * 2))
  done
  word="| ${w[0]} | ${w[6]} | ${w[1]} | $schedule"
  while ! simulate "$t4" "${w[0]}" "${w[1]}" "${w[2]}" --schedule "$schedule" \
    --gpu-batch-size "$batch" --num-gpu-batches "$batches" \
    --prefill-piece $((least > 512 ? least : 512)) "${w[@]:7}" >"$work/out" 2>"$work/error"; do
    if ((batch % 2 != 0)); then
      echo "$word | | $(jq -r .tok_per_s <<<"$2") | does not fit | | | | |"
      sed "s/^stagecoach: /$schedule, ${w[0]}, ${w[6]}: /" "$work/error" >>"$work/refused"
      return
    fi
    batch=$((batch / 2)) batches=$((batches * 2))
  done
  echo "$word | $batch x $batches | $(jq -r .tok_per_s <<<"$2") | $(jq -r "$columns" "$work/out") |"
}

papers_policies() {
  local row schedule
  echo "## The paper's policies"
  echo
  echo "| model | prompt | GPUs | schedule | batch | published | here | compute % | h2d % | disk read % | CPU % |"
  echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
  while IFS= read -r row; do
    for schedule in zigzag rolling; do
      papers_row "$schedule" "$row"
    done
  done < <(jq -c '.uncompressed[]' "$paper")
  if [[ -s $work/refused ]]; then
    echo
    sed 's/; .*//; s/^/- /' "$work/refused"
  fi
}

# row LABEL PROFILE STAGES REQUESTS OPTIONS...: OPT-175B, prompts of 512.
row() {
  simulate "$2" 175b "$3" "$4" --prompt-len 512 --cpu-attention on "${@:5}" >"$work/out"
  echo "| $1 | $4 | $(jq -r "$columns" "$work/out") |"
}

# The same node with FlexGen's rate of attention on the CPU.
flexgens_attention() {
  sed -E 's/^(f16|int4) cpu = .*/\1 cpu = 9.3e9/' "$t4" >"$work/slow.ini"
  echo "$work/slow.ini"
}

# A block of 64 sequences shares a pass over the weights. DRAM holds the weights and 61 % of the cache,
# the disk the rest: as much as it can read while the weights are copied. Prompts come in pieces of as
# many tokens as there are prompts to a decoded token, 16.
f16=(--gpu-batch-size 16 --num-gpu-batches 4 --inner-iterations 4 --prefill-piece 1024
  --percent 0 100 0 61 100 0 --weight-buffers 3)
int4=(--compress-weights int4 --compress-cache int4 --gpu-batch-size 40 --num-gpu-batches 5
  --inner-iterations 4 --prefill-piece 3200 --percent 0 100 0 100 100 0 --weight-buffers 3)

own_policies() {
  local slow
  slow=$(flexgens_attention)
  echo "## OPT-175B on four nodes, prompts of 512, 32 new tokens (FlexGen: 2.33 tokens/s)"
  echo
  echo "| policy | requests | tokens/s | compute % | h2d % | disk read % | CPU % |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  row "f16" "$t4" 4 1600 "${f16[@]}"
  row "f16" "$t4" 4 6400 "${f16[@]}"
  row "f16, CPU attention at 9.3 GB/s" "$slow" 4 1600 "${f16[@]}"
  row "f16, 40 a block, nothing on disk" "$t4" 4 1600 --gpu-batch-size 20 --num-gpu-batches 2 \
    --inner-iterations 4 --prefill-piece 640 --percent 0 100 0 100 100 0 --weight-buffers 3
  row "int4 weights and cache" "$t4" 4 3200 "${int4[@]}"
  row "int4, CPU attention at 9.3 GB/s" "$slow" 4 3200 "${int4[@]}"
}

scaling() {
  echo "## OPT-175B in f16 on 1 to 32 nodes, requests of 512 + 32 tokens, five for each place"
  echo
  echo "| nodes | requests | tokens/s | compute % | h2d % | disk read % | CPU % |"
  echo "| --- | --- | --- | --- | --- | --- | --- |"
  row 1 "$t4" 1 1600 --gpu-batch-size 16 --num-gpu-batches 20 --inner-iterations 1 \
    --prefill-piece 5120 --percent 0 40 0 0 100 0 --weight-buffers 2
  row 2 "$t4" 2 640 --gpu-batch-size 16 --num-gpu-batches 4 --inner-iterations 2 \
    --prefill-piece 1024 --percent 0 93 0 0 100 0 --weight-buffers 3
  row 4 "$t4" 4 1280 "${f16[@]}"
  row 8 "$t4" 8 2560 --gpu-batch-size 16 --num-gpu-batches 4 --inner-iterations 8 \
    --prefill-piece 1024 --percent 0 100 0 85 100 0 --weight-buffers 3
  row 16 "$t4" 16 5120 --gpu-batch-size 16 --num-gpu-batches 4 --inner-iterations 16 \
    --prefill-piece 1024 --percent 20 80 0 100 100 0 --weight-buffers 2
  row 32 "$t4" 32 10560 --gpu-batch-size 16 --num-gpu-batches 4 --inner-iterations 33 \
    --prefill-piece 1024 --percent 100 0 0 100 100 0
}

case $what in
  paper) papers_policies ;;
  175b) own_policies ;;
  scaling) scaling ;;
  all) papers_policies && echo && own_policies && echo && scaling ;;
  *) echo "bench/paper/ours.sh: $what: must be paper, 175b or scaling" >&2; exit 2 ;;
esac
