#!/usr/bin/env bash
# Weights that are streamed from disk for every visit, beside what fio reads of the same file with
# requests of the same size and depth. Makes a store of 2.5 GB (OPT-1.3B, dummy weights) in FOLDER;
# needs root, to drop the page cache, and fio. Runs take turns.
#
#   bench/stream.sh FOLDER [REPEATS]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/stream.sh FOLDER [REPEATS]}
repeats=${2:-5}
need fio
store=$folder/bench-opt-1.3b.h5
dummy_store "$store" opt-1.3b
requests 1 2 6 >"$work/prompts.jsonl"

# Both print MB/s: of the whole job, its compute included.
engine() {
  drop_caches
  run_job "$work/log" "$stagecoach" run --model "$store" --prompts "$work/prompts.jsonl" \
    --output "$work/out.jsonl" --overwrite --threads 1 --gpu-batch-size 1 \
    --percent 0 0 100 0 100 0
  local read
  read=$(sed -n 's/.*disk: read .* in \([0-9.]*\) busy s, \([0-9]*\) MB\/s.*/\1 \2/p' "$work/log")
  awk -v seconds="$(job_seconds "$work/log")" '{ printf "%.0f\n", $1 * $2 / seconds }' <<<"$read"
}

disk() {
  drop_caches
  fio --name=read --filename="$store" --rw=read --bs=8M --direct=1 --ioengine=io_uring \
    --iodepth=8 --registerfiles=1 --fixedbufs=1 --readonly --time_based --runtime=7 \
    --output-format=terse |
    awk -F';' '{ printf "%.0f\n", $7 * 1024 / 1e6 }'
}

for ((i = 1; i <= repeats; ++i)); do
  engine | tee -a "$work/engine" | sed "s/^/run $i: engine MB\/s /"
  disk | tee -a "$work/disk" | sed "s/^/run $i: fio    MB\/s /"
done
e=$(median "$work/engine") d=$(median "$work/disk")
echo "engine $e MB/s, fio $d MB/s, ratio $(ratio "$e" "$d")"
