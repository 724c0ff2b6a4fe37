#!/usr/bin/env bash
# Stagecoach on several ranks of this machine.
#
#   launch/local.sh -n RANKS COMMAND [options]
#   launch/local.sh -n 4 run --model model.h5 --prompts in.jsonl --output out.jsonl
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=launch/mpi-settings.sh
source "$here/mpi-settings.sh"

if [[ ${1:-} != -n || ! ${2:-} =~ ^[1-9][0-9]*$ || $# -lt 3 ]]; then
  echo "usage: launch/local.sh -n RANKS COMMAND [options]" >&2
  exit 2
fi
ranks=$2
shift 2
stagecoach=$(find_stagecoach)
# Ranks are not bound: each has threads of its own, and takes its share of the CPUs.
exec mpirun -n "$ranks" --oversubscribe --bind-to none "$stagecoach" "$@"
