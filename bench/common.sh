# shellcheck shell=bash
# What the benchmark scripts share. Source it from a script in bench/.
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=launch/mpi-settings.sh
source "$here/launch/mpi-settings.sh"
stagecoach=$(find_stagecoach)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Of the numbers in a file, one a line.
median() {
  sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

ratio() { awk "BEGIN { printf \"%.2f\", $1 / $2 }"; }

need() {
  command -v "$1" >/dev/null || { echo "this benchmark needs $1" >&2; exit 2; }
}

# Empties the page cache; needs root.
drop_caches() {
  sync
  echo 3 >/proc/sys/vm/drop_caches
}

# dummy_store FILE SPEC OPTIONS...: makes the store unless it is there.
dummy_store() {
  [[ -e $1 ]] ||
    "$stagecoach" convert --dummy 1 --spec "$here/configs/models/$2.ini" --to "$1" "${@:3}"
}

# requests COUNT PROMPT_TOKENS NEW_TOKENS: different prompts of one length.
requests() {
  awk -v count="$1" -v length_="$2" -v new="$3" 'BEGIN {
    for (i = 0; i < count; ++i) {
      printf "{\"id\":%d,\"max_new_tokens\":%d,\"ignore_eos\":true,\"prompt_token_ids\":[2", i, new
      for (t = 1; t < length_; ++t) printf ",%d", 3 + (i * 131 + t * 17) % 4000
      print "]}"
    }
  }'
}

# run_job LOG COMMAND...: the log on failure.
run_job() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
}

# in_group GROUP COMMAND...: in a cgroup; GROUP may be empty.
in_group() (
  [[ -z $1 ]] || echo "$BASHPID" >"$1/cgroup.procs"
  shift
  exec "$@"
)

# throttled_group FOLDER BYTES_PER_SECOND: sets `group` to a blkio cgroup (version 1; root) in which
# FOLDER's disk is read, and written, no faster.
throttled_group() {
  local device
  group=/sys/fs/cgroup/blkio/stagecoach-bench
  mkdir "$group"
  trap 'rmdir -- "$group"; rm -rf -- "$work"' EXIT
  device=$(lsblk -no MAJ:MIN "$(df --output=source "$1" | tail -n 1)" | tr -d ' ')
  echo "$device $(numfmt --from=si "$2")" >"$group/blkio.throttle.read_bps_device"
  echo "$device $(numfmt --from=si "$2")" >"$group/blkio.throttle.write_bps_device"
}

# From a job's log: generated tokens a second; seconds of the job without loading.
tokens_per_second() { sed -n 's/.* \([0-9.]*\) generated tokens\/s$/\1/p' "$1" | tail -n 1; }
job_seconds() { sed -n 's/.* requests in \([0-9.]*\) s: .*/\1/p' "$1" | tail -n 1; }
