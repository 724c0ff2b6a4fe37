#!/usr/bin/env bash
# Builds the CUDA device's tests and benchmarks with a C++20 compiler and nvcc 13 alone: no CMake, no
# MPI, Boost or HDF5. Sources and headers of others come from third_party of a bundle (check.sh
# --bundle), or from the system. Everything is built anew.
#
#   tests/gpu/build.sh FOLDER [--architectures native|75,90...] [--standin] [--without-host]
#
#   --standin        the same sources on the CPU, against tests/support/cuda_standin
#   --without-host   without the host device, and without the tests that compare with it; so it is
#                    where Highway is missing
#
# Leaves the programs in FOLDER/bin and, in FOLDER/left-out, the tests that were not built and why.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
export PATH=$PATH:/usr/local/cuda/bin
usage() {
  echo "usage: tests/gpu/build.sh FOLDER [--architectures native|75,90] [--standin]" \
    "[--without-host]" >&2
  exit 2
}
[[ $# -ge 1 && $1 != -* ]] || usage
mkdir -p -- "$1"
folder=$(cd -- "$1" && pwd)
shift
architectures=native
standin=
host=1
while [[ $# -gt 0 ]]; do
  case $1 in
    --architectures)
      [[ $# -ge 2 ]] || usage
      architectures=$2
      shift
      ;;
    --standin) standin=1 ;;
    --without-host) host= ;;
    *) usage ;;
  esac
  shift
done
cd -- "$root"
rm -rf -- "${folder:?}"/{objects,bin,left-out}
mkdir -p "$folder/objects" "$folder/bin"
: >"$folder/left-out"

third_party=$root/third_party
googletest=$third_party/googletest
[[ -d $googletest ]] || googletest=/usr/src/googletest
[[ -d $googletest ]] || { echo "build.sh: no sources of GoogleTest (libgtest-dev)" >&2; exit 2; }

flags=(-std=c++20 -O2 -g1 -Isrc -Itests -Ibench
  -DFMT_HEADER_ONLY -DXXH_INLINE_ALL "-DSTAGECOACH_SOURCE_DIR=\"$root\"")
foreign=("-isystem" "$googletest/googletest/include" "-isystem" "$googletest/googlemock/include")
[[ ! -d $third_party/include ]] || foreign+=("-isystem" "$third_party/include")

read -ra compiler <<<"${CXX:-g++}"

# finds HEADER LIBRARY-OPTIONS: whether something small with both links.
finds() {
  echo "#include <$1>
int main() {}" >"$folder/objects/try.cpp"
  "${compiler[@]}" "${flags[@]}" "${foreign[@]}" "$folder/objects/try.cpp" -o "$folder/objects/try" \
    "${@:2}" 2>/dev/null
}

highway=(-lhwy)
if [[ -e $third_party/lib/libhwy.so.1 ]]; then
  highway=("$third_party/lib/libhwy.so.1" "-Wl,-rpath,$third_party/lib")
fi
if [[ -n $host ]] && ! finds hwy/highway.h "${highway[@]}"; then
  host=
fi

links=(-lpthread -ldl -lrt)
if [[ -n $standin ]]; then
  foreign+=(-Itests/support/cuda_standin/include)
else
  command -v nvcc >/dev/null || { echo "build.sh: no nvcc in PATH or /usr/local/cuda" >&2; exit 2; }
  release=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  [[ $release -ge 13 ]] || { echo "build.sh: nvcc is of CUDA $release; 13 is needed" >&2; exit 2; }
  toolkit=$(dirname -- "$(dirname -- "$(readlink -f -- "$(command -v nvcc)")")")
  foreign+=("-isystem" "$toolkit/include")
  for library in lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib; do
    [[ ! -d $toolkit/$library ]] || links+=("-L$toolkit/$library" "-Wl,-rpath,$toolkit/$library")
  done
  links+=(-lcudart_static -lcublas -lpthread -ldl -lrt)
  if [[ $architectures == native ]]; then
    codes=(-arch=native)
  else
    codes=()
    for architecture in ${architectures//,/ }; do
      codes+=("-gencode=arch=compute_$architecture,code=sm_$architecture")
    done
  fi
fi

# What is compiled: the list that xargs gets, "OBJECT KIND SOURCE".
sources=()
add() {
  local kind=$1 source
  shift
  for source in "$@"; do
    sources+=("${source//[^A-Za-z0-9]/_}.o" "$kind" "$source")
  done
}
base=()
for source in src/base/*.cpp; do
  # The log needs spdlog, and nothing here has one.
  [[ $source == */log.cpp ]] || base+=("$source")
done
add cpp "${base[@]}" src/device/argument_checks.cpp src/device/buffer.cpp \
  tests/support/scalar_reference.cpp
cuda_cpp=()
for source in src/device/cuda/*.cpp; do
  [[ $source == *_stub.cpp ]] || cuda_cpp+=("$source")
done
cuda_kind=cu
[[ -z $standin ]] || cuda_kind=cu_on_cpu
add cpp "${cuda_cpp[@]}"
add "$cuda_kind" src/device/cuda/*.cu
if [[ -n $host ]]; then
  add host src/device/host/*.cpp
else
  add cpp src/device/host/host_event.cpp src/device/host/host_stream.cpp \
    src/device/host/stream_queue.cpp
fi
[[ -z $standin ]] || add cpp tests/support/cuda_standin/*.cpp
library_count=${#sources[@]}

add gtest "$googletest/googletest/src/gtest-all.cc" "$googletest/googlemock/src/gmock-all.cc" \
  "$googletest/googlemock/src/gmock_main.cc"
# reach SOURCE: it and the headers of tests/ that it includes, or they do.
reach() {
  local -a files=("$1")
  local -A seen=(["$1"]=1)
  local i header
  for ((i = 0; i < ${#files[@]}; ++i)); do
    while read -r header; do
      if [[ -e tests/$header && -z ${seen[$header]:-} ]]; then
        seen[$header]=1
        files+=("tests/$header")
      fi
    done < <(sed -n 's/^#include "\(.*\)"$/\1/p' "${files[i]}")
  done
  printf '%s\n' "${files[@]}"
}
# includes PATTERN SOURCE: whether one of them has such an include.
includes() {
  local files
  mapfile -t files < <(reach "$2")
  grep -qE "^#include [\"<]($1)" "${files[@]}"
}
larger='comm/|e2e/|support/program|support/temp_folder|stage/|job/|offload/|model/|mpi|support/transport_conformance|cuda/device_memory_transport'
tests=()
helpers=()
for source in tests/cuda/*.cpp; do
  [[ -e $source ]] || continue
  name=$(basename -- "$source" .cpp)
  if includes "$larger" "$source"; then
    why="needs more of the program than the device"
  elif [[ -z $standin ]] && includes 'support/cuda_standin' "$source"; then
    why="is about the stand-in for CUDA"
  elif [[ -z $host ]] && includes 'device/host/host_device' "$source"; then
    why="compares with the host device, which needs Highway"
  elif [[ $name == *_test ]]; then
    tests+=("$source")
    continue
  else
    helpers+=("$source")
    continue
  fi
  [[ $name != *_test ]] || echo "$name: $why" >>"$folder/left-out"
done
[[ ${#tests[@]} -gt 0 ]] || { echo "build.sh: no test in tests/cuda can be built" >&2; exit 1; }
add cpp "${tests[@]}" "${helpers[@]}" bench/gpu/*.cpp

# compile OBJECT KIND SOURCE
compile() {
  local object=$objects/$1 kind=$2 source=$3
  local -a command
  local IFS=$'\x1f'
  # shellcheck disable=SC2206
  local -a common=($common_flags) outside=($foreign_flags) cuda_codes=($code_flags)
  # shellcheck disable=SC2206
  local -a compiler=($compiler_words)
  unset IFS
  case $kind in
    cpp) command=("${compiler[@]}" "${common[@]}" -Wall -Wextra -ffp-contract=off) ;;
    host)
      command=("${compiler[@]}" "${common[@]}" -ffp-contract=off
        "-DHWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL)"
        '-DSTAGECOACH_HIGHWAY_VERSION="of the bundle"')
      ;;
    cu_on_cpu) command=("${compiler[@]}" "${common[@]}" -ffp-contract=off -x c++) ;;
    gtest) command=("${compiler[@]}" "${common[@]}" "-I$googletest_folder/googletest" \
      "-I$googletest_folder/googlemock") ;;
    cu)
      nvcc -std=c++20 "${cuda_codes[@]}" -O2 -Isrc -DFMT_USE_CONSTEXPR=1 -DFMT_HEADER_ONLY \
        "${outside[@]}" --Werror=all-warnings -c "$source" -o "$object"
      return
      ;;
  esac
  "${command[@]}" "${outside[@]}" -c "$source" -o "$object"
}
export -f compile
join() { local IFS=$'\x1f'; echo "$*"; }
objects=$folder/objects googletest_folder=$googletest
common_flags=$(join "${flags[@]}") foreign_flags=$(join "${foreign[@]}")
code_flags=$(join "${codes[@]:-}") compiler_words=$(join "${compiler[@]}")
export compiler_words objects googletest_folder common_flags foreign_flags code_flags
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 3 -P "$(nproc)" bash -c 'set -euo pipefail; compile "$@"' compile

object_of() { echo "$objects/${1//[^A-Za-z0-9]/_}.o"; }
library=()
for ((i = 0; i < library_count; i += 3)); do
  library+=("$objects/${sources[i]}")
done
[[ -z $host ]] || links+=("${highway[@]}")
test_objects=()
for source in "$googletest/googletest/src/gtest-all.cc" "$googletest/googlemock/src/gmock-all.cc" \
  "$googletest/googlemock/src/gmock_main.cc" "${helpers[@]}"; do
  test_objects+=("$(object_of "$source")")
done
for source in "${tests[@]}"; do
  "${compiler[@]}" "$(object_of "$source")" "${test_objects[@]}" "${library[@]}" \
    -o "$folder/bin/$(basename -- "$source" .cpp)" "${links[@]}"
done
bench_objects=()
for source in bench/gpu/*.cpp; do
  bench_objects+=("$(object_of "$source")")
done
"${compiler[@]}" "${bench_objects[@]}" "${library[@]}" -o "$folder/bin/gpu_bench" "${links[@]}"
echo "build.sh: ${#tests[@]} test programs and gpu_bench in $folder/bin"
