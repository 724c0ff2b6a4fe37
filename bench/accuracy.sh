#!/usr/bin/env bash
# What compression and sparse attention cost in accuracy: perplexity of a text, and accuracy on last
# words, in f16, int8, int4, and int4 with sparse attention. Without arguments the bundled model and
# its held-out text. A checkpoint's folder is converted first.
#
#   bench/accuracy.sh [MODEL.h5|CHECKPOINT TEXT LAST_WORDS.jsonl [options of eval]]
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
bundled=$here/examples/tiny-opt
model=${1:-$bundled}
text=${2:-$bundled/heldout.txt}
words=${3:-$bundled/lastword.jsonl}
shift $(($# < 3 ? $# : 3))

if [[ -d $model ]]; then
  run_job "$work/convert.log" "$stagecoach" convert --from "$model" --to "$work/model.h5"
  model=$work/model.h5
fi

declare -A options=(
  [f16]=""
  [int8]="--compress-weights int8 --compress-cache int8"
  [int4]="--compress-weights int4 --compress-cache int4"
  ["int4, sparsity 0.1"]="--compress-weights int4 --compress-cache int4 --attention-sparsity 0.1"
)

# figure TASK NAME: from the table that eval printed; "-" if it has none.
figure() {
  awk -v task="$1" -v name="$2" '$1 == task && $2 == name { print $3; found = 1 }
    END { if (!found) print "-" }' "$work/table"
}

# change NOW F16: in per cent.
change() { awk "BEGIN { printf \"%+.2f %%\", 100 * ($1 / $2 - 1) }"; }

printf '| stored in | perplexity a token | change | a word | last words right | NLL a last word | change |\n'
printf '| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n'
for name in f16 int8 int4 "int4, sparsity 0.1"; do
  read -ra extra <<<"${options[$name]}"
  "$stagecoach" eval --model "$model" --perplexity "$text" --last-word "$words" \
    --log-level warning "${extra[@]}" "$@" >"$work/table"
  perplexity=$(figure perplexity perplexity)
  nll=$(figure last_word nll_per_word)
  [[ $name != f16 ]] || { perplexity_f16=$perplexity nll_f16=$nll; }
  printf '| %s | %.4f | %s | %s | %s of %s | %.4f | %s |\n' "$name" \
    "$perplexity" "$(change "$perplexity" "$perplexity_f16")" "$(figure perplexity word_perplexity)" \
    "$(figure last_word right)" "$(figure last_word examples)" \
    "$nll" "$(change "$nll" "$nll_f16")"
done
