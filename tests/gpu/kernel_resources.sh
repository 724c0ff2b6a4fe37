#!/usr/bin/env bash
# What the compiler gives each kernel: registers, stack and spills in bytes, static shared memory,
# for every architecture that is built. Compared with kernel_resources.txt; a difference is shown
# and fails, since nobody would see it otherwise before a GPU is slow. No GPU is needed.
#
#   tests/gpu/kernel_resources.sh            compares
#   tests/gpu/kernel_resources.sh --update   writes the table anew
#
# KERNEL_SOURCES and KERNEL_TABLE name other sources, other tables (to try this script itself).
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
export PATH=$PATH:/usr/local/cuda/bin

architectures=(75 80 90 120)
table=${KERNEL_TABLE:-tests/gpu/kernel_resources.txt}
update=
case ${1:-} in
  '') ;;
  --update) update=1 ;;
  *) echo "usage: tests/gpu/kernel_resources.sh [--update]" >&2; exit 2 ;;
esac
command -v nvcc >/dev/null || { echo "kernel_resources.sh: no nvcc" >&2; exit 2; }

if [[ -n ${KERNEL_SOURCES:-} ]]; then
  read -ra sources <<<"$KERNEL_SOURCES"
else
  sources=(src/device/cuda/*.cu)
fi

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# compile ARCHITECTURE SOURCE: leaves the compiler's report in WORK.
compile() {
  local name
  name=$(basename -- "$2" .cu)
  nvcc -std=c++20 -arch="sm_$1" -cubin -Isrc -DFMT_USE_CONSTEXPR=1 --Werror=all-warnings \
    -Xptxas=-v "$2" -o "$work/$name-$1.cubin" >"$work/$name-$1.report" 2>&1 ||
    { cat "$work/$name-$1.report" >&2; return 1; }
  c++filt <"$work/$name-$1.report" >"$work/$name-$1.names"
}
export -f compile
export work
for source in "${sources[@]}"; do
  for architecture in "${architectures[@]}"; do
    printf '%s\0%s\0' "$architecture" "$source"
  done
done | xargs -0 -n 2 -P "$(nproc)" bash -c 'set -euo pipefail; compile "$@"' compile

# One line a kernel and architecture. Names lose their namespaces and parameters, but keep the
# template's arguments.
lines() {
  awk -v file="$(basename -- "$1")" -v architecture="$2" '
    /Compiling entry function/ {
      name = $0
      sub(/^[^\047]*\047/, "", name); sub(/\047 for .*/, "", name)
      sub(/^void /, "", name)
      gsub(/\(anonymous namespace\)::/, "", name); gsub(/stagecoach::|device::|cuda::/, "", name)
      depth = 0
      for (i = 1; i <= length(name); ++i) {
        c = substr(name, i, 1)
        if (c == "<") ++depth
        if (c == ">") --depth
        if (c == "(" && depth == 0) { name = substr(name, 1, i - 1); break }
      }
    }
    /bytes stack frame/ { stack = $1; spilled = $5; reloaded = $9 }
    /: Used [0-9]+ registers/ {
      registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
      shared = 0
      if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
      printf "%-22s sm_%-4s %9d %6d %7d %7d %7d  %s\n", file, architecture, registers, stack,
             spilled, reloaded, shared, name
    }' "$work/$(basename -- "$1" .cu)-$2.names"
}

{
  printf '%-22s %-7s %9s %6s %7s %7s %7s  %s\n' \
    '# source' arch registers stack spilled reload shared kernel
  for source in "${sources[@]}"; do
    for architecture in "${architectures[@]}"; do
      lines "$source" "$architecture"
    done
  done | LC_ALL=C sort -k1,1 -k8 -k2,2V
} >"$work/table"

kernels=$(grep -vc '^#' "$work/table" || true)
if [[ $kernels -eq 0 ]]; then
  echo "kernel_resources.sh: the compiler reported no kernel" >&2
  exit 1
fi
if [[ -n $update ]]; then
  cp -- "$work/table" "$table"
  echo "$table: $kernels lines"
  exit 0
fi
if ! diff -u --label "$table" --label "the compiler, now" "$table" "$work/table"; then
  echo "kernel resources differ from $table; if that is meant: tests/gpu/kernel_resources.sh --update" >&2
  exit 1
fi
echo "kernel resources as in $table ($kernels lines)"
