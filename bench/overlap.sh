#!/usr/bin/env bash
# What a visit costs when compute and one transfer take about the same time: each alone, then both,
# one thread each, in turns. Weights come from disk, or (with "copies") from DRAM. The block's size
# is chosen so that compute takes as long as the transfer. OPT-1.3B, dummy weights, store in FOLDER.
#
#   bench/overlap.sh FOLDER [disk|copies] [REPEATS]
#   bench/overlap.sh FOLDER disk 5 600M      the disk throttled by a blkio cgroup (version 1; root)
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
folder=${1:?usage: bench/overlap.sh FOLDER [disk|copies] [REPEATS] [BYTES_PER_SECOND]}
transfer=${2:-disk}
repeats=${3:-5}
throttle=${4:-}
visits=4
batches=4
store=$folder/bench-opt-1.3b.h5
dummy_store "$store" opt-1.3b
case $transfer in
  disk) away=(0 0 100 0 100 0) ;;
  copies) away=(0 100 100 0 100 0) ;;
  *) echo "bench/overlap.sh: $transfer: must be disk or copies" >&2; exit 2 ;;
esac

group=
if [[ -n $throttle ]]; then
  group=/sys/fs/cgroup/blkio/stagecoach-bench
  mkdir "$group"
  trap 'rmdir -- "$group"; rm -rf -- "$work"' EXIT
  device=$(lsblk -no MAJ:MIN "$(df --output=source "$folder" | tail -n 1)" | tr -d ' ')
  echo "$device $(numfmt --from=si "$throttle")" >"$group/blkio.throttle.read_bps_device"
fi

# seconds SEQUENCES BATCHES OPTIONS...: of a job of `visits` visits, each of SEQUENCES rows.
seconds() {
  local sequences=$1 count=$2
  shift 2
  requests "$sequences" 1 "$visits" >"$work/prompts.jsonl"
  run_job "$work/log" in_group "$group" \
    "$stagecoach" run --model "$store" --prompts "$work/prompts.jsonl" --output "$work/out.jsonl" \
    --overwrite --threads 1 --gpu-batch-size $(((sequences + count - 1) / count)) \
    --num-gpu-batches "$count" "$@"
  job_seconds "$work/log"
}

alone=(--percent 100 0 100 0 100 0)
moved=(--percent "${away[@]}")

# As many sequences as make compute as long as the transfer.
sequences=64
t=$(seconds 1 1 "${moved[@]}")
c=$(seconds "$sequences" "$batches" "${alone[@]}")
sequences=$(awk "BEGIN { n = int($sequences * $t / $c / $batches + 0.5) * $batches; print (n < $batches) ? $batches : n }")
echo "$sequences sequences in $batches GPU batches, $visits visits"

for ((i = 1; i <= repeats; ++i)); do
  seconds "$sequences" "$batches" "${alone[@]}" | tee -a "$work/compute" | sed "s/^/run $i: compute alone s  /"
  seconds 1 1 "${moved[@]}" | tee -a "$work/transfer" | sed "s/^/run $i: transfer alone s /"
  for kind in rolling zigzag flexgen no-overlap; do
    options=(--schedule "$kind")
    [[ $kind != no-overlap ]] || options=(--no-overlap)
    seconds "$sequences" "$batches" "${moved[@]}" "${options[@]}" | tee -a "$work/$kind" |
      sed "s/^/run $i: $kind s /"
  done
done
c=$(median "$work/compute") t=$(median "$work/transfer")
larger=$(awk "BEGIN { print ($c > $t) ? $c : $t }")
echo "compute alone $c s, transfer alone $t s"
for kind in rolling zigzag flexgen no-overlap; do
  m=$(median "$work/$kind")
  echo "$kind: $m s, $(ratio "$m" "$larger") of the larger"
done
