#!/usr/bin/env bash
# From nothing to generated text: installs what is missing, builds, converts the bundled checkpoint,
# and answers examples/prompts.jsonl on two MPI ranks. It can be run again; what is done is not redone.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() {
  printf '\n== %s\n' "$*"
}

model=build/demo/tiny-opt.h5
output=build/demo/out.jsonl
mkdir -p build/demo

say "Packages"
launch/install-packages.sh

say "Building stagecoach (build/host)"
cmake --preset host -Wno-dev >build/demo/configure.log ||
  { cat build/demo/configure.log; exit 1; }
cmake --build --preset host --parallel "$(nproc)" --target stagecoach

if [[ -n $(find examples/tiny-opt -newer "$model" -print -quit 2>/dev/null || echo none) ]]; then
  say "Converting examples/tiny-opt to $model"
  build/host/src/stagecoach convert --from examples/tiny-opt --to "$model" --overwrite
else
  say "$model is there already"
fi

say "Generating on two ranks: launch/local.sh -n 2 run --model $model ..."
launch/local.sh -n 2 run --model "$model" --prompts examples/prompts.jsonl \
  --output "$output" --ordered --overwrite

say "Prompts and what the model made of them (all of it: ${output%.jsonl}.ordered.jsonl)"
jq -r -n --slurpfile requests examples/prompts.jsonl --slurpfile results "$output" '
  ($results | INDEX(.id | tostring)) as $by_id
  | $requests[]
  | "[\(.id)] \(.prompt // "tokens \(.prompt_token_ids)")\n    ->\($by_id[.id | tostring].text)\n"'
