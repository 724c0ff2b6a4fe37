#!/usr/bin/env bash
# How fast a rank loads its weights from disk, beside what the disk gives to fio in the same minute.
# Makes a store of 2.5 GB (OPT-1.3B, dummy weights) in FOLDER; needs root, to drop the page cache, and
# fio. Runs take turns; prints every run, the medians and their ratio.
#
#   bench/load.sh FOLDER [REPEATS]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

folder=${1:?usage: bench/load.sh FOLDER [REPEATS]}
repeats=${2:-5}
need fio
store=$folder/bench-opt-1.3b.h5
dummy_store "$store" opt-1.3b
echo '{"id":1,"prompt_token_ids":[2],"max_new_tokens":1}' >"$work/prompts.jsonl"

# Both print MB/s.
load() {
  drop_caches
  "$stagecoach" run --model "$store" --prompts "$work/prompts.jsonl" --output "$work/out.jsonl" \
    --overwrite 2>&1 |
    awk '/ of weights in / { for (i = 1; i < NF; ++i) if ($i == "in") s = $(i + 1) }
         END { printf "%.0f\n", '"$(stat -c %s "$store")"' / s / 1e6 }'
}

disk() {
  drop_caches
  fio --name=read --filename="$store" --rw=read --bs=8M --direct=1 --ioengine=psync --numjobs=4 \
    --offset_increment=25% --size=25% --group_reporting --output-format=terse |
    awk -F';' '{ printf "%.0f\n", $7 * 1024 / 1e6 }'
}

for ((i = 1; i <= repeats; ++i)); do
  load | tee -a "$work/load" | sed "s/^/run $i: load MB\/s /"
  disk | tee -a "$work/disk" | sed "s/^/run $i: fio  MB\/s /"
done
l=$(median "$work/load") d=$(median "$work/disk")
echo "load $l MB/s, fio $d MB/s, ratio $(ratio "$l" "$d")"
