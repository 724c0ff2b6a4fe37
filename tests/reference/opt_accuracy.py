"""What packing and sparse attention cost tiny-opt: perplexity, last words. See README.md."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from opt_model import WINDOW, Model, Options, Tokenizer, read_weights

SOURCE = Path(__file__).resolve().parents[2]
EXAMPLE = SOURCE / "examples/tiny-opt"
END = 2  # </s>
SPARSE = 0.1

BOTH = Options(weight_bits=4, cache_bits=4)
VARIANTS = {
    "f16": Options(),
    "int4 weights": Options(weight_bits=4),
    "int4 cache": Options(cache_bits=4),
    "int4 weights, cache": BOTH,
    "int8 weights, cache": Options(weight_bits=8, cache_bits=8),
    "sparse, as published": Options(sparsity=SPARSE),
    "sparse, renormalised": Options(sparsity=SPARSE, renormalise=True),
    "int4 weights by output": Options(weight_bits=4, weight_axis=0),
    "int4 weights by output, cache": Options(weight_bits=4, weight_axis=0, cache_bits=4),
    "int4 weights, cache, sparse as published": Options(4, cache_bits=4, sparsity=SPARSE),
    "int4 weights, cache, sparse renormalised": Options(
        4, cache_bits=4, sparsity=SPARSE, renormalise=True
    ),
    "int4 weights, cache, embedding": Options(4, embedding_bits=4, cache_bits=4),
}


def heldout_windows(tokenizer):
    """Inputs and targets [windows, WINDOW]."""
    stream = []
    for document in (EXAMPLE / "heldout.txt").read_text().split("\n\n"):
        stream += [END, *tokenizer.encode(document.strip("\n"))]
    count = (len(stream) - 1) // WINDOW
    stream = np.array(stream[: count * WINDOW + 1])
    return stream[:-1].reshape(count, WINDOW), stream[1:].reshape(count, WINDOW)


def last_words(tokenizer):
    """Pairs of context and target tokens."""
    examples = []
    for line in (EXAMPLE / "lastword.jsonl").read_text().splitlines():
        text = json.loads(line)["text"]
        space = text.rindex(" ")
        examples.append(([END, *tokenizer.encode(text[:space])], tokenizer.encode(text[space:])))
    return examples


def nll_per_token(model, inputs, targets, batch=8):
    """Of those tokens whose rows may be sparse."""
    counted = model.options.first_sparse
    total = 0.0
    for first in range(0, len(inputs), batch):
        logs = model.log_probabilities(inputs[first : first + batch])
        chosen = np.take_along_axis(logs, targets[first : first + batch, :, None], axis=2)
        total -= chosen[:, counted:].sum(dtype=np.float64)
    return total / targets[:, counted:].size


def last_word_results(model, examples, batch=40):
    """Right ones, and mean NLL a word. Short rows are filled up behind, where nothing looks."""
    right, nll = 0, 0.0
    ordered = sorted(examples, key=lambda pair: len(pair[0]) + len(pair[1]))
    for first in range(0, len(ordered), batch):
        some = ordered[first : first + batch]
        rows = np.full((len(some), max(len(c) + len(t) for c, t in some)), END)
        for row, (context, target) in zip(rows, some):
            row[: len(context) + len(target)] = context + target
        for logs, (context, target) in zip(model.log_probabilities(rows), some):
            logs = logs[len(context) - 1 :][: len(target)]
            right += (logs.argmax(axis=1) == target).all()
            nll -= logs[np.arange(len(target)), target].sum(dtype=np.float64)
    return int(right), nll / len(examples)


def check_f16(perplexity, right, word_nll):
    """The published figures of tests/data/tiny_opt_reference.json."""
    expected = json.loads((SOURCE / "tests/data/tiny_opt_reference.json").read_text())
    words = expected["last_word"]
    assert abs(perplexity / expected["perplexity"]["perplexity"] - 1) < 1e-6, perplexity
    assert right == words["right"], right
    assert abs(word_nll / words["mean_nll_per_word"] - 1) < 1e-6, word_nll


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--only", metavar="NAME", help="f16, and variants with NAME in theirs")
    parser.add_argument(
        "--prompt", type=int, default=0, help="tokens whose rows are dense and do not count"
    )
    parser.add_argument("--sparsity", type=float, default=SPARSE, help="of the sparse variants")
    arguments = parser.parse_args()

    tokenizer = Tokenizer(EXAMPLE)
    weights = read_weights(EXAMPLE / "model.safetensors")
    inputs, targets = heldout_windows(tokenizer)
    examples = last_words(tokenizer)
    base = None
    print("| variant | perplexity | change | right of 400 | NLL per word | change |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for name, options in VARIANTS.items():
        if name != "f16" and arguments.only and arguments.only not in name:
            continue
        start = time.monotonic()
        share = arguments.sparsity if options.sparsity < 1 else 1
        options = replace(options, sparsity=share, first_sparse=arguments.prompt)
        model = Model(weights, options, np.dtype(arguments.dtype))
        right, word_nll = last_word_results(model, examples)
        perplexity = float(np.exp(nll_per_token(model, inputs, targets)))
        if base is None:
            if arguments.prompt == 0:
                check_f16(perplexity, right, word_nll)
            base = perplexity, word_nll
        print(
            f"| {name} | {perplexity:.4f} | {100 * (perplexity / base[0] - 1):+.2f} % "
            f"| {right} | {word_nll:.4f} | {100 * (word_nll / base[1] - 1):+.2f} % |",
            flush=True,
        )
        print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
