"""tiny-opt in numpy: its weights, its tokenizer, and a forward pass with options."""

import json
import re
import struct
from dataclasses import dataclass

import numpy as np

from packing_rules import dequantized

HEADS, LAYERS, WINDOW = 4, 8, 512
HEAD_DIM = 64


def read_weights(path):
    """Name without `model.decoder.` -> f16 array."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    weights = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            assert entry["dtype"] == "F16"
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            array = np.frombuffer(data[begin:end], np.float16).reshape(entry["shape"])
            weights[name.removeprefix("model.decoder.")] = array
    return weights


def byte_letters():
    """GPT-2's printable letter for each byte."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printing]
    return {b: chr(b) for b in printing} | {b: chr(256 + i) for i, b in enumerate(rest)}


class Tokenizer:
    """Byte-level BPE. Letters and digits are Python's, which is enough for the example's text."""

    PIECES = re.compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+"
    )

    def __init__(self, folder):
        self.ids = json.loads((folder / "vocab.json").read_text())
        lines = (folder / "merges.txt").read_text().splitlines()
        lines = lines[1:] if lines[0].startswith("#version") else lines
        self.ranks = {tuple(line.split()): i for i, line in enumerate(lines)}
        self.letters = byte_letters()
        self.known = {}

    def merged(self, parts):
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, np.inf) for pair in zip(parts, parts[1:])]
            if min(ranks) == np.inf:
                break
            best = ranks.index(min(ranks))
            pair, joined, i = (parts[best], parts[best + 1]), [], 0
            while i < len(parts):
                here = tuple(parts[i : i + 2]) == pair
                joined.append("".join(pair) if here else parts[i])
                i += 2 if here else 1
            parts = joined
        return [self.ids[part] for part in parts]

    def encode(self, text):
        tokens = []
        for piece in self.PIECES.findall(text):
            if piece not in self.known:
                self.known[piece] = self.merged([self.letters[b] for b in piece.encode()])
            tokens += self.known[piece]
        return tokens


@dataclass(frozen=True)
class Options:
    """Bits of None are f16. Groups are of 64."""

    weight_bits: int | None = None
    weight_axis: int = 1  # of [out, in]: 1 along the inputs, 0 along the outputs
    embedding_bits: int | None = None
    cache_bits: int | None = None
    sparsity: float = 1.0  # share of the earlier positions whose values a sparse row adds up
    first_sparse: int = 0  # rows before this position are dense, as those of a prompt
    renormalise: bool = False  # divide by the weights of the kept positions alone


class Model:
    def __init__(self, weights, options, dtype):
        self.options = options
        self.dtype = dtype
        self.w = {name: self.stored(name, w).astype(dtype) for name, w in weights.items()}

    def stored(self, name, weight):
        options = self.options
        if name == "embed_tokens.weight":
            bits, axis = options.embedding_bits, 1
        else:
            bits, axis = options.weight_bits, options.weight_axis
        if bits is None or weight.ndim < 2 or name == "embed_positions.weight":
            return weight
        return dequantized(weight, bits, 64, axis).astype(np.float16)

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-5)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def cached(self, x):
        bits = self.options.cache_bits
        return x if bits is None else dequantized(x, bits, 64).astype(self.dtype)

    def heads(self, x):
        return x.reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(0, 2, 1, 3)

    def attention(self, x, name):
        """x: [batch, tokens, hidden]"""
        query = self.heads(self.linear(x, name + ".q_proj")) / np.sqrt(HEAD_DIM).astype(self.dtype)
        key = self.cached(self.heads(self.linear(x, name + ".k_proj")))
        value = self.cached(self.heads(self.linear(x, name + ".v_proj")))
        tokens = x.shape[1]
        out = np.empty_like(query)
        future = np.triu(np.ones((tokens, tokens), bool), 1)
        for sample in range(x.shape[0]):
            for head in range(HEADS):
                scores = query[sample, head] @ key[sample, head].T
                scores[future] = -np.inf
                out[sample, head] = self.mixed(scores, value[sample, head])
        out = out.transpose(0, 2, 1, 3).reshape(x.shape)
        return self.linear(out, name + ".out_proj")

    def mixed(self, scores, value):
        """Values weighted by softmax of `scores`, row i seeing positions up to i."""
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        total = weights.sum(axis=1, keepdims=True)
        if self.options.sparsity < 1:
            weights = np.where(self.kept(scores), weights, 0)
            if self.options.renormalise:
                total = weights.sum(axis=1, keepdims=True)
        return (weights @ value) / total

    def kept(self, scores):
        """The ceil(sparsity * earlier) earlier positions with the highest scores, and its own."""
        rows = np.arange(len(scores))
        earlier = scores.copy()
        earlier[rows, rows] = -np.inf
        count = np.ceil(self.options.sparsity * rows - 1e-9).astype(int)
        ascending = np.sort(earlier, axis=1)
        threshold = ascending[rows, len(rows) - np.maximum(count, 1)]
        keep = (earlier >= threshold[:, None]) & (count > 0)[:, None]
        keep[rows, rows] = True
        keep[: self.options.first_sparse] = True
        return keep

    def log_probabilities(self, tokens):
        """tokens: [batch, n] -> [batch, n, vocab]"""
        x = self.w["embed_tokens.weight"][tokens]
        x = x + self.w["embed_positions.weight"][2 : 2 + tokens.shape[1]]
        for layer in range(LAYERS):
            name = f"layers.{layer}"
            x += self.attention(self.norm(x, name + ".self_attn_layer_norm"), name + ".self_attn")
            up = self.linear(self.norm(x, name + ".final_layer_norm"), name + ".fc1")
            x += self.linear(np.maximum(up, 0, out=up), name + ".fc2")
        logits = self.norm(x, "final_layer_norm") @ self.w["embed_tokens.weight"].T
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return logits
