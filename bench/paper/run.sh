#!/usr/bin/env bash
# The tables of the FlexGen paper (arXiv 2303.06865) by 'stagecoach simulate': published, simulated
# and their ratio, in Markdown. The constants are those of flexgen-t4.ini, one set for all rows, the
# schedule is FlexGen's. Needs no GPU and no model, and takes seconds. Fails if a ratio is out of
# bounds: 10 % for generation, 20 % for decoding and for packed rows (see docs/paper.md).
#
#   bench/paper/run.sh
set -euo pipefail
# shellcheck source=bench/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
need jq
paper=$here/bench/paper/flexgen-paper.json

# Of a row, one option or value a line: how FlexGen ran it. FlexGen places whole tensors, each by the
# middle of its share of a phase's bytes (attention: four equal matrices, MLP: two, twice as large),
# disk first: so "20 80" puts one matrix of twelve parts on the GPU, "4 96" none. It has two buffers
# of streamed weights.
# shellcheck disable=SC2016  # the $ are of jq
options='
  def placed($gpu; $cpu):
    (100 - $gpu - $cpu) as $disk
    | [[12.5, 1], [37.5, 1], [62.5, 1], [87.5, 1], [25, 4], [75, 4]]
    | [ (map(select(.[0] >= $disk + $cpu)) | map(.[1]) | add // 0),
        (map(select(.[0] >= $disk and .[0] < $disk + $cpu)) | map(.[1]) | add // 0) ]
    | map(. * 100 / 12);
  def switch($on): if $on then "on" else "off" end;
  def packing($on): if $on then "int4" else "none" end;
  [ "--stages", .gpus, "--prompt-len", .prompt_len,
    "--gpu-batch-size", .batch[0], "--num-gpu-batches", .batch[1], "--inner-iterations", .batch[2],
    "--percent", placed(.percent[0]; .percent[1])[], .percent[2:][],
    "--cpu-attention", switch(.cpu_attention), "--pin-weights", switch(.pin_weights),
    "--compress-weights", packing(.compress_weights),
    "--compress-cache", packing(.compress_cache),
    (if .overlap then empty else "--no-overlap" end) ] | .[]'

# simulate ROW: JSON; ROW is a line of the paper's rows.
simulate() {
  local model
  local -a words
  model=$(jq -r .model <<<"$1")
  mapfile -t words < <(jq -r "$options" <<<"$1")
  "$stagecoach" simulate --spec "$here/configs/models/opt-$model.ini" \
    --profile "$here/bench/paper/flexgen-t4.ini" --gen-len "$(jq .gen_len "$paper")" \
    --schedule flexgen --page-tokens 64 --weight-buffers 2 --offload-dir . --json "${words[@]}"
}

# rows KEY: each row of the paper's with what was simulated as .sim, and the seconds that its
# throughputs imply, where it has both.
rows() {
  local row
  while IFS= read -r row; do
    jq -c --argjson row "$row" --argjson gen_len "$(jq .gen_len "$paper")" '
      . as $sim
      | $row + {sim: $sim}
      | (.batch | .[0] * .[1] * .[2]) as $requests
      | if .decode_tok_per_s then
          .decode_s = $requests * ($gen_len - 1) / .decode_tok_per_s
          | .prefill_s = $requests * $gen_len / .tok_per_s - .decode_s
        else . end' < <(simulate "$row")
  done < <(jq -c ".${1}[]" "$paper")
}

# shellcheck disable=SC2016  # likewise
format='
  def digits($n): if . == null then "" else
    (pow(10; $n) as $f | . * $f + 0.5 | floor | tostring) as $t
    | if $n == 0 then $t else
        (if ($t | length) <= $n then ("0" * ($n + 1 - ($t | length))) + $t else $t end)
        | .[:-$n] + "." + .[-$n:] end end;
  def rate: if . == null then "" else digits(if . < 1 then 3 else 2 end) end;
  def over($published): if $published == null then null else . / $published end;
  def line: "| " + join(" | ") + " |";'

rows uncompressed >"$work/uncompressed"
rows four_bit >"$work/four_bit"
rows ablation >"$work/ablation"

echo "## Tables 2 and 3, uncompressed"
echo
echo "Generated tokens a second, then decoded ones (published, simulated, ratio), then seconds"
echo "(implied by the two throughputs, simulated)."
echo
echo "| model | prompt | GPUs | generation | simulated | ratio | decode | simulated | ratio | prefill s | simulated | decode s | simulated |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
jq -r "$format"'
  [ .model, .prompt_len, .gpus,
    (.tok_per_s | rate), (.sim.tokens_per_second | rate),
    (.tok_per_s as $p | .sim.tokens_per_second | over($p) | digits(2)),
    (.decode_tok_per_s | rate), (.sim.decode_tokens_per_second | rate),
    (.decode_tok_per_s as $p | .sim.decode_tokens_per_second | over($p) | digits(2)),
    (.prefill_s | digits(1)), (.sim.prefill_seconds | digits(1)),
    (.decode_s | digits(1)), (.sim.seconds - .sim.prefill_seconds | digits(1)) ] | line' \
  "$work/uncompressed"

echo
echo "## 4 bits, one GPU"
echo
echo "| model | prompt | packed | generation | simulated | ratio |"
echo "| --- | --- | --- | --- | --- | --- |"
jq -r "$format"'
  [ .model, .prompt_len, (if .compress_weights then "weights, cache" else "cache" end),
    (.tok_per_s | rate), (.sim.tokens_per_second | rate),
    (.tok_per_s as $p | .sim.tokens_per_second | over($p) | digits(2)) ] | line' "$work/four_bit"

echo
echo "## Ablation, one GPU, prompts of 512"
echo
echo "| model | | batch | generation | simulated | ratio | prefill s | simulated | decode s | simulated |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
jq -r "$format"'
  [ .model, .variant, (.batch[:2] | join(" x ")) + (if .batch_assumed then " (assumed)" else "" end),
    (.tok_per_s | rate), (.sim.tokens_per_second | rate),
    (.tok_per_s as $p | .sim.tokens_per_second | over($p) | digits(2)),
    (.prefill_s | digits(1)), (.sim.prefill_seconds | digits(1)),
    (.decode_s | digits(1)), (.sim.seconds - .sim.prefill_seconds | digits(1)) ] | line' \
  "$work/ablation"

# Out of bounds. On four GPUs 6.7B decodes at the speed of launches and messages, which these
# constants do not have.
cat "$work/uncompressed" "$work/four_bit" | jq -rs '
  def off: (. - 1) | fabs;
  map(. as $row
    | (.sim.tokens_per_second / .tok_per_s | off) as $generation
    | (if .decode_tok_per_s then .sim.decode_tokens_per_second / .decode_tok_per_s | off else 0 end)
      as $decode
    | select($generation > (if .compress_cache then 0.2 else 0.1 end)
             or ($decode > 0.2 and (.model == "6.7b" and .gpus == 4 | not)))
    | "out of bounds: \(.model), prompts of \(.prompt_len), \(.gpus) GPUs")
  | .[]' >"$work/failures"
cat "$work/failures" >&2
[[ ! -s $work/failures ]]
