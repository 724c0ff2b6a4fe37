#!/usr/bin/env bash
# Stagecoach on the machines of an Open MPI hostfile, stages in its order.
#
#   launch/hostfile.sh HOSTFILE COMMAND [options]
#
# HOSTFILE has a line for each machine, "host-a slots=1"; slots is its number of stages. Each machine
# needs ssh without a password, and this program and the model under the same paths.
set -euo pipefail
here=$(dirname -- "${BASH_SOURCE[0]}")
# shellcheck source=launch/mpi-settings.sh
source "$here/mpi-settings.sh"

if [[ $# -lt 2 || ! -r $1 ]]; then
  echo "usage: launch/hostfile.sh HOSTFILE COMMAND [options]" >&2
  exit 2
fi
hostfile=$1
shift
stagecoach=$(find_stagecoach)
exec mpirun --hostfile "$hostfile" --bind-to none "$stagecoach" "$@"
