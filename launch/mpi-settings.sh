# Sourced by the launchers: settings of Open MPI that every Stagecoach job wants.
# shellcheck shell=bash

# A rank that waits inside MPI gives its core to one that computes.
export OMPI_MCA_mpi_yield_when_idle=1

# Open MPI asks twice before it runs as root, as it must in many containers.
if [[ $(id -u) -eq 0 ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Prints the stagecoach program: $STAGECOACH, or the one built here, or the one in PATH.
find_stagecoach() {
  local built
  built=$(dirname -- "${BASH_SOURCE[0]}")/../build/host/src/stagecoach
  if [[ -n ${STAGECOACH:-} ]]; then
    echo "$STAGECOACH"
  elif [[ -x $built ]]; then
    realpath -- "$built"
  elif ! command -v stagecoach; then
    echo "no stagecoach program: build it (cmake --preset host && cmake --build --preset host)," \
      "or name it in STAGECOACH" >&2
    return 1
  fi
}
