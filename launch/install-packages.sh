#!/usr/bin/env bash
# Installs what building, testing and running Stagecoach needs and this machine lacks.
#
#   launch/install-packages.sh         compiler, libraries, MPI, test libraries
#   launch/install-packages.sh --dev   also what CI and benchmarks need
#
# Debian 12 and Ubuntu 24.04. Needs root (or sudo) only when something is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config
  libopenmpi-dev openmpi-bin
  libhdf5-dev
  libboost-program-options-dev
  libhwy-dev
  libspdlog-dev libfmt-dev
  nlohmann-json3-dev
  libpcre2-dev
  libxxhash-dev
  liburing-dev
  coinor-libclp-dev
  libgtest-dev libgmock-dev
  jq
)
# The names are the same on both systems. The fuzzer's runtime carries the version of the default
# clang: 14 on Debian 12, 18 on Ubuntu 24.04. The formatter is 14 on both: another version formats
# differently.
dev_packages=(ccache clang-format-14 clang-tidy-14 clang shellcheck libbenchmark-dev libdnnl-dev fio)

case ${1:-} in
  '') ;;
  --dev)
    packages+=("${dev_packages[@]}")
    # shellcheck source=/dev/null
    if [[ $(. /etc/os-release && echo "${VERSION_CODENAME:-}") == noble ]]; then
      packages+=(libclang-rt-18-dev)
    else
      packages+=(libclang-rt-14-dev)
    fi
    ;;
  *)
    echo "usage: launch/install-packages.sh [--dev]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "install-packages: this system has no apt; install the counterparts of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "install-packages: nothing is missing"
  exit 0
fi

echo "install-packages: installing ${missing[*]}"
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "install-packages: not root, and there is no sudo; as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install --yes -qq --no-install-recommends "${missing[@]}"
