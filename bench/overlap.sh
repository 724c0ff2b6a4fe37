#!/usr/bin/env bash
# What a visit costs when compute and one transfer take about the same time: each alone, then both,
# one thread each, in turns. Weights come from disk under the decoding of four GPU batches, or (with
# "copies") from DRAM under a prompt that crosses in pieces. How many rows a visit has is chosen so
# that compute takes as long as the transfer. OPT-1.3B, dummy weights, store in FOLDER.
#
#   bench/overlap.sh FOLDER [disk|copies|decode] [REPEATS]
#   bench/overlap.sh FOLDER disk 5 600M      the disk throttled by a blkio cgroup (version 1; root)
#
# With "decode" weights are copied under one decoding sequence: both live on the DRAM's bandwidth,
# which is shown beside that of two jobs that only copy.
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/overlap.sh FOLDER [disk|copies|decode] [REPEATS] [BYTES_PER_SECOND]}
transfer=${2:-disk}
repeats=${3:-5}
throttle=${4:-}
store=$folder/bench-opt-1.3b.h5
dummy_store "$store" opt-1.3b
case $transfer in
  disk) away=(0 0 100 0 100 0) visits=4 batches=4 rows=64 ;;
  copies) away=(0 100 100 0 100 0) visits=12 batches=1 rows=16 ;;
  decode) away=(0 100 100 0 100 0) visits=12 batches=1 rows=1 ;;
  *) echo "bench/overlap.sh: $transfer: must be disk, copies or decode" >&2; exit 2 ;;
esac

group=
if [[ -n $throttle ]]; then
  throttled_group "$folder" "$throttle"
fi

# seconds ROWS BATCHES OPTIONS...: of a job of `visits` visits, each of ROWS rows.
seconds() {
  local rows=$1 count=$2 shape
  shift 2
  if [[ $transfer == disk ]]; then
    requests "$rows" 1 "$visits" >"$work/prompts.jsonl"
    shape=(--gpu-batch-size $(((rows + count - 1) / count)) --num-gpu-batches "$count")
  else
    requests 1 $((rows * visits)) 1 >"$work/prompts.jsonl"
    shape=(--gpu-batch-size 1 --prefill-piece "$rows")
  fi
  run_job "$work/log" in_group "$group" "$stagecoach" run --model "$store" \
    --prompts "$work/prompts.jsonl" --output "$work/out.jsonl" --overwrite --threads 1 \
    "${shape[@]}" "$@"
  job_seconds "$work/log"
}

alone=(--percent 100 0 100 0 100 0)
moved=(--percent "${away[@]}")

# Bytes of a pass over the weights move once to be computed with, twice to be copied.
if [[ $transfer == decode ]]; then
  requests 1 1 "$visits" >"$work/prompts.jsonl"
  job=("$stagecoach" run --model "$store" --prompts "$work/prompts.jsonl" --threads 1
    --gpu-batch-size 1 --overwrite)
  # one NAME OPTIONS...: seconds of a job.
  one() {
    run_job "$work/log-$1" "${job[@]}" --output "$work/out-$1.jsonl" "${@:2}"
    job_seconds "$work/log-$1"
  }
  for ((i = 1; i <= repeats; ++i)); do
    one a "${alone[@]}" >>"$work/compute"
    one a "${moved[@]}" --no-overlap >>"$work/serial"
    one a "${moved[@]}" >>"$work/both"
    one b "${moved[@]}" >>"$work/pair" &
    one c "${moved[@]}" >>"$work/pair"
    wait
  done
  awk -v w="$(stat -c %s "$store")" -v n="$visits" -v c="$(median "$work/compute")" \
    -v s="$(median "$work/serial")" -v b="$(median "$work/both")" -v p="$(median "$work/pair")" '
    BEGIN {
      gb = w * n / 1e9
      printf "decode alone: %.2f s, %.1f GB/s\n", c, gb / c
      printf "copies and decode in turns: %.2f s, %.1f GB/s\n", s, 3 * gb / s
      printf "copies under decode: %.2f s, %.1f GB/s\n", b, 3 * gb / b
      printf "the machine with two such jobs at once: %.1f GB/s\n", 6 * gb / p
    }'
  exit 0
fi

# Twice, since time is not quite in proportion to rows.
for _ in 1 2; do
  t=$(seconds 1 1 "${moved[@]}")
  c=$(seconds "$rows" "$batches" "${alone[@]}")
  rows=$(awk "BEGIN { n = int($rows * $t / $c / $batches + 0.5) * $batches; print (n < $batches) ? $batches : n }")
done
echo "$rows rows a visit in $batches GPU batches, $visits visits"

kinds=(rolling zigzag flexgen no-overlap)
# The paper's block and FlexGen do not cut prompts into pieces.
[[ $transfer == disk ]] || kinds=(rolling no-overlap)
for ((i = 1; i <= repeats; ++i)); do
  seconds "$rows" "$batches" "${alone[@]}" | tee -a "$work/compute" | sed "s/^/run $i: compute alone s  /"
  seconds 1 1 "${moved[@]}" | tee -a "$work/transfer" | sed "s/^/run $i: transfer alone s /"
  for kind in "${kinds[@]}"; do
    options=(--schedule "$kind")
    [[ $kind != no-overlap ]] || options=(--no-overlap)
    seconds "$rows" "$batches" "${moved[@]}" "${options[@]}" | tee -a "$work/$kind" |
      sed "s/^/run $i: $kind s /"
  done
done
c=$(median "$work/compute") t=$(median "$work/transfer")
larger=$(awk "BEGIN { print ($c > $t) ? $c : $t }")
echo "compute alone $c s, transfer alone $t s"
for kind in "${kinds[@]}"; do
  m=$(median "$work/$kind")
  echo "$kind: $m s, $(ratio "$m" "$larger") of the larger"
done
