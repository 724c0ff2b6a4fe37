#!/usr/bin/env bash
# The GPU's figures: rates of the device's operations (gpu_bench), and what a visit of a whole job
# costs beside the larger of its parts, when weights are copied from DRAM under a prompt that crosses
# in pieces, or under decoding. Layers of OPT-6.7B and OPT-30B with dummy weights; stores of 3 and
# 10 GB are made in FOLDER. Prints a table, and writes FOLDER/gpu.csv.
#
#   bench/gpu/run.sh FOLDER [REPEATS]
#
# STAGECOACH is the program, GPU_BENCH the benchmark (tests/gpu/build.sh makes it), DEVICE_MEM what the
# GPU may use: 15GiB, so that a large GPU stands for a small one.
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
folder=${1:?usage: bench/gpu/run.sh FOLDER [REPEATS]}
repeats=${2:-5}
device_mem=${DEVICE_MEM:-15GiB}
gpu_bench=${GPU_BENCH:-$here/build/gpu-check/bin/gpu_bench}
csv=$folder/gpu.csv
[[ -x $gpu_bench ]] || { echo "no gpu_bench: tests/gpu/build.sh $here/build/gpu-check" >&2; exit 2; }

"$gpu_bench" --device-mem "$device_mem" --repeats "$(((repeats / 2) * 2 + 1))" --csv "$csv"

# seconds STORE PIECE ROWS OPTIONS...: of a job in which every visit has PIECE rows, ROWS in all.
seconds() {
  local store=$1 piece=$2 rows=$3
  shift 3
  requests 1 "$rows" 1 >"$work/prompts.jsonl"
  run_job "$work/log" "$stagecoach" run --model "$store" --prompts "$work/prompts.jsonl" \
    --output "$work/out.jsonl" --overwrite --device cuda --device-mem "$device_mem" \
    --gpu-batch-size 1 --prefill-piece "$piece" "$@"
  job_seconds "$work/log"
}

# overlap MODEL LAYERS: a visit's compute is made as long as its copies by the size of its piece.
overlap() {
  local model=$1 layers=$2 visits=4 piece=128 store=$folder/bench-$1-$2.h5 t c m larger aim=1.1
  sed "s/^layers = .*/layers = $layers/" "$here/configs/models/$model.ini" >"$work/$model.ini"
  [[ -e $store ]] || "$stagecoach" convert --dummy 1 --spec "$work/$model.ini" --to "$store"
  local alone=(--percent 100 0 100 0 100 0) moved=(--percent 0 100 100 0 100 0)
  # A prompt has at most 2048 tokens. Twice, since time is not quite in proportion to rows.
  for _ in 1 2; do
    t=$(seconds "$store" 1 "$visits" "${moved[@]}")
    c=$(seconds "$store" "$piece" $((piece * visits)) "${alone[@]}")
    piece=$(awk "BEGIN { n = int($piece * $t / $c); print (n < 1) ? 1 : (n > 500) ? 500 : n }")
  done
  rm -f -- "$work"/{compute,transfer,both,serial}
  for ((i = 1; i <= repeats; ++i)); do
    seconds "$store" "$piece" $((piece * visits)) "${alone[@]}" >>"$work/compute"
    seconds "$store" 1 "$visits" "${moved[@]}" >>"$work/transfer"
    seconds "$store" "$piece" $((piece * visits)) "${moved[@]}" >>"$work/both"
    seconds "$store" "$piece" $((piece * visits)) "${moved[@]}" --no-overlap >>"$work/serial"
  done
  c=$(median "$work/compute") t=$(median "$work/transfer")
  larger=$(awk "BEGIN { print ($c > $t) ? $c : $t }")
  for kind in both serial; do
    m=$(median "$work/$kind")
    [[ $kind == both ]] || aim=0
    awk -v model="$model" -v kind="$kind" -v piece="$piece" -v m="$m" -v larger="$larger" \
      -v aim="$aim" -v csv="$csv" -v c="$c" -v t="$t" 'BEGIN {
        ratio = m / larger
        verdict = aim == 0 ? "-" : ratio <= aim ? "met" : "not met"
        name = model " " (kind == "both" ? "copies under compute" : "one after the other")
        printf "overlap   %-34s %.3f s: %.2f of the larger (compute %.3f s, copies %.3f s; " \
               "%d rows a visit), aim %s: %s\n", name, m, ratio, c, t, piece, \
               aim == 0 ? "-" : "<= " aim, verdict
        printf "overlap,%s,%g,s,larger part,%g,%g,%s,%s\n", name, m, larger, ratio, aim, \
               verdict >>csv
      }'
  done
}

overlap opt-6.7b 8
overlap opt-30b 8
echo "$csv"
