#!/usr/bin/env bash
# What 4-bit weights and cache are worth to a job that waits for its disk: decoding with all weights
# on disk, f16 against int4; and with weights and cache in DRAM, what is copied. Runs take turns.
# Makes stores of 2.5 and 0.9 GB (OPT-1.3B, dummy weights) in FOLDER; needs root, to drop the page
# cache.
#
#   bench/compress.sh FOLDER [REPEATS]
#   bench/compress.sh FOLDER 3 600M      the disk throttled by a blkio cgroup (version 1)
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/compress.sh FOLDER [REPEATS] [BYTES_PER_SECOND]}
repeats=${2:-3}
throttle=${3:-}
f16=$folder/bench-opt-1.3b.h5
int4=$folder/bench-opt-1.3b-int4.h5
dummy_store "$f16" opt-1.3b
dummy_store "$int4" opt-1.3b --quantize int4
requests 4 1 12 >"$work/decode.jsonl"
requests 4 64 12 >"$work/prompts.jsonl"

group=
if [[ -n $throttle ]]; then
  throttled_group "$folder" "$throttle"
fi

# one NAME STORE PROMPTS OPTIONS...: tokens a second; the job's log is kept as log-NAME.
one() {
  local name=$1 store=$2 prompts=$3
  shift 3
  drop_caches
  run_job "$work/log-$name" in_group "$group" "$stagecoach" run --model "$store" \
    --prompts "$work/$prompts.jsonl" --output "$work/out.jsonl" --overwrite \
    --gpu-batch-size 4 --prefill-piece 256 "$@"
  tokens_per_second "$work/log-$name"
}

# of_token NAME WHAT: bytes moved for each token, from the job's log.
of_token() {
  sed -n -E "/$2/s/.*(it; |size\\), )([0-9.]+ [KMGT]?i?B) (and|for) .*/\\2/p" "$work/log-$1" |
    awk '{ unit["B"] = 1; unit["KiB"] = 2^10; unit["MiB"] = 2^20; unit["GiB"] = 2^30
           printf "%.0f\n", $1 * unit[$2] }'
}

disk=(--percent 0 0 100 0 100 0)
dram=(--percent 0 100 0 100 100 0 --cpu-attention off)
for ((i = 1; i <= repeats; ++i)); do
  one f16 "$f16" decode "${disk[@]}" | tee -a "$work/f16" | sed "s/^/run $i: disk, f16  tokens\/s /"
  one int4 "$int4" decode "${disk[@]}" --compress-cache int4 | tee -a "$work/int4" |
    sed "s/^/run $i: disk, int4 tokens\/s /"
done
read_f16=$(of_token f16 'disk: read') read_int4=$(of_token int4 'disk: read')
one f16 "$f16" prompts "${dram[@]}" >/dev/null
one int4 "$int4" prompts "${dram[@]}" --compress-cache int4 >/dev/null
moved_f16=$(of_token f16 'moved:') moved_int4=$(of_token int4 'moved:')
a=$(median "$work/f16") b=$(median "$work/int4")
echo "disk: f16 $a tokens/s, int4 $b tokens/s, $(ratio "$b" "$a") times"
echo "read from disk for each token: f16 $read_f16 bytes, int4 $read_int4, $(ratio "$read_int4" "$read_f16") of it"
echo "copied to the device for each token: f16 $moved_f16 bytes, int4 $moved_int4, $(ratio "$moved_int4" "$moved_f16") of it"
