#!/bin/sh
# Starts the program of a bundle with the libraries that were packed with it, and with cuBLAS of the
# CUDA toolkit that nvcc belongs to.
here=$(dirname -- "$(readlink -f -- "$0")")
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc || echo /usr/local/cuda/bin/nvcc)
toolkit=$(dirname -- "$(dirname -- "$(readlink -f -- "$nvcc")")")
LD_LIBRARY_PATH=$here/lib:$toolkit/lib64:$toolkit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "$here/bin/stagecoach" "$@"
