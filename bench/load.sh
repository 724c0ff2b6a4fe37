#!/usr/bin/env bash
# How fast a rank loads its weights from disk, beside what the disk gives to fio in the same minute.
# Makes a store of 2.5 GB (OPT-1.3B, dummy weights) in FOLDER; needs root, to drop the page cache, and
# fio. Runs take turns; prints every run, the medians and their ratio.
#
#   bench/load.sh FOLDER [REPEATS]
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/mpi-settings.sh
source "$here/launch/mpi-settings.sh"

folder=${1:?usage: bench/load.sh FOLDER [REPEATS]}
repeats=${2:-5}
stagecoach=$(find_stagecoach)
store=$folder/load-bench.h5
work=$(mktemp -d)
trap 'rm -rf -- "$work" "$store"' EXIT
command -v fio >/dev/null || { echo "bench/load.sh needs fio" >&2; exit 2; }

"$stagecoach" convert --dummy 1 --spec "$here/configs/models/opt-1.3b.ini" --to "$store" --overwrite
echo '{"id":1,"prompt_token_ids":[2],"max_new_tokens":1}' >"$work/prompts.jsonl"

drop_caches() {
  sync
  echo 3 >/proc/sys/vm/drop_caches
}

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

median() {
  sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

for ((i = 1; i <= repeats; ++i)); do
  load | tee -a "$work/load" | sed "s/^/run $i: load MB\/s /"
  disk | tee -a "$work/disk" | sed "s/^/run $i: fio  MB\/s /"
done
l=$(median "$work/load") d=$(median "$work/disk")
echo "load $l MB/s, fio $d MB/s, ratio $(awk "BEGIN { printf \"%.2f\", $l / $d }")"
