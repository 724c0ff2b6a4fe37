"""Writes tests/data/packing_vectors.json: runs of numbers, and what packing makes of them.

Numbers are hexadecimal bit patterns one after the other, 8 digits for f32 and 4 for f16;
parameters, codes and rows are hexadecimal bytes in the order of memory."""

import json
from pathlib import Path

import numpy as np

from packing_rules import meaning, quantize

TARGET = Path(__file__).resolve().parents[1] / "data/packing_vectors.json"
GROUPS = [32, 64, 128]
LENGTHS = [1, 31, 32, 33, 64, 100, 128, 200, 256]
SOME = 100  # three whole groups of 32 and a rest; and less than one group of 128
F16_MAX = 65504.0
STEP = 2.0**-24  # the least f16 number


def filled(rng, values):
    """SOME numbers: `values`, then random ones between their extremes."""
    values = np.asarray(values, np.float64)
    rest = rng.uniform(values.min(), values.max(), SOME - len(values))
    return np.concatenate([values, rest])


def four_groups(*quarters):
    """Different numbers in each group of 32."""
    return np.concatenate([np.resize(q, 32) for q in quarters])[:SOME]


def ties(rng, bits, scale, minimum=0.0):
    """Numbers halfway between two codes."""
    highest = 2**bits - 1
    codes = np.concatenate([[0, highest], rng.integers(0, highest, SOME - 2) + 0.5])
    return minimum + codes * scale


def quotients(rng, bits):
    """Numbers whose code is another when they are multiplied by 1 / scale instead of divided."""
    highest = 2**bits - 1
    found = []
    while len(found) < SOME - 2:
        scale = np.float16(rng.uniform(0.01, 1))
        size = scale.astype(np.float32)
        near = ((rng.integers(0, highest, 4096) + 0.5) * size.astype(np.float64)).astype(np.float32)
        different = near[np.rint(near / size) != np.rint(near * (np.float32(1) / size))]
        found = different[: SOME - 2]
    return np.concatenate([[0, highest * size.astype(np.float64)], np.resize(found, SOME - 2)])


def overflowing(rng, bits):
    """Groups up to f16's largest number whose scale, to nearest, would lead beyond it."""
    highest = np.float32(2**bits - 1)
    found = []
    while len(found) < 4:
        smallest = np.float32(np.float16(rng.uniform(-F16_MAX, 0)))
        scale = ((np.float32(F16_MAX) - smallest) / highest).astype(np.float16)
        top = meaning(highest, smallest, scale)
        if top >= 65520:
            found.append(np.concatenate([[smallest, F16_MAX], rng.uniform(smallest, F16_MAX, 30)]))
    return np.concatenate(found)[:SOME]


def kinds(rng, bits):
    """Name -> f64 numbers; all of them but the last few also make sense as f16."""
    tiny = rng.integers(-300, 300, 32) * STEP
    denormal = four_groups(tiny, tiny * 0.37, rng.uniform(0, 3, 32) * STEP, tiny / 600)
    highest = 2**bits - 1
    return {
        "constant": np.full(SOME, 0.1),
        "heavy-tailed": np.clip(0.02 * rng.standard_cauchy(SOME), -6e4, 6e4),
        "denormal": denormal,
        "scale at the least normal number": filled(rng, [0, highest * 2.0**-14]),
        "scale below the least normal number": filled(rng, [0, highest * 2.0**-14 * (1 - 2**-12)]),
        "denormal in f32": rng.uniform(-1, 1, SOME) * 2.0**-130,
        "zero": np.zeros(SOME),
        "negative zero": np.full(SOME, -0.0),
        "zeros of either sign": rng.choice([0.0, -0.0], SOME),
        "zeros and more": rng.choice([0.0, -0.0, 1.0, 2.0], SOME),
        "huge": four_groups([-F16_MAX, F16_MAX], [F16_MAX], [-F16_MAX], rng.uniform(-6e4, 6e4, 32)),
        "huge, scale rounded down": overflowing(rng, bits),
        "not finite": four_groups([1, np.nan, 2], [np.inf, 0], [-np.inf, 3], rng.normal(size=32)),
        "ties between codes": ties(rng, bits, 0.125),
        "ties between codes above a minimum": ties(rng, bits, 2.0**-6, -1.5),
        "scale halfway, to even below": filled(rng, [0, highest * (1 + 2.0**-11)]),
        "scale halfway, to even above": filled(rng, [0, highest * (1 + 3 * 2.0**-11)]),
        "quotients": quotients(rng, bits),
        "minimum halfway, to even below": filled(rng, [1 + 2.0**-11, 1.25]),
        "minimum halfway, to even above": filled(rng, [1 + 3 * 2.0**-11, 1.25]),
        "beyond f16": four_groups([65519, 65000], [65520, 65530], [-1e5, 0], [0, 1e6]),
        "range beyond f32": four_groups([-3e38, 3e38], [0, 4e5], [-65519, 65519], [1e30]),
    }


def code_bytes(codes, bits):
    codes = np.pad(codes, (0, -len(codes) % 32)).reshape(-1, 2, 16)
    if bits == 8:
        return codes.tobytes()
    return (codes[:, 0] | codes[:, 1] << 4).astype(np.uint8).tobytes()


def packed(values, bits, group):
    """f32 numbers -> parameters, codes (bytes) and meaning (f32)."""
    params, codes, means = b"", [], []
    for first in range(0, len(values), group):
        minimum, scale, some = quantize(values[first : first + group], bits)
        params += minimum.astype("<f2").tobytes() + scale.astype("<f2").tobytes()
        mean = meaning(some, minimum, scale)
        # A product has 19 bits at most: with and without a fused multiply-add it is the same.
        twice = some.astype(np.float32) * scale.astype(np.float32) + minimum.astype(np.float32)
        assert np.array_equal(mean, twice, equal_nan=True)
        codes.append(some)
        means.append(mean)
    return params, code_bytes(np.concatenate(codes), bits), np.concatenate(means)


def hexadecimal(values):
    return values.astype(values.dtype.newbyteorder(">")).tobytes().hex()


class Vectors:
    def __init__(self):
        self.inputs = {}
        self.runs = []
        self.rows = []

    def add(self, name, values, bits, group):
        """A run from f32 numbers, and a row from the same in f16."""
        wide = values.astype(np.float32)
        narrow = values.astype(np.float16)
        about = {"input": name, "packing": f"int{bits}", "group": group}
        self.inputs[name] = {"f32": hexadecimal(wide), "f16": hexadecimal(narrow)}
        params, codes, means = packed(wide, bits, group)
        run = {"params": params.hex(), "codes": codes.hex(), "meaning": hexadecimal(means)}
        self.runs.append(about | run)
        params, codes, means = packed(narrow.astype(np.float32), bits, group)
        row = params + bytes(-len(params) % 16) + codes
        narrow_means = hexadecimal(means.astype(np.float16))
        self.rows.append(about | {"row": row.hex(), "meaning": narrow_means})

    def write(self):
        def lines(items):
            return ",\n  ".join(json.dumps(item, separators=(",", ":")) for item in items)

        inputs = ",\n  ".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in self.inputs.items())
        TARGET.write_text(
            '{"about": "Packed runs and rows, by tests/reference/packing_vectors.py",\n'
            f' "inputs": {{\n  {inputs}}},\n "runs": [\n  {lines(self.runs)}],\n'
            f' "rows": [\n  {lines(self.rows)}]}}\n'
        )


def main():
    rng = np.random.default_rng(20230723)
    vectors = Vectors()
    normal = {length: rng.normal(size=length) for length in LENGTHS}
    for bits in (4, 8):
        for length, values in normal.items():
            for group in GROUPS:
                vectors.add(f"normal, {length}", values, bits, group)
    with np.errstate(over="ignore", invalid="ignore"):
        for bits in (4, 8):
            for name, values in kinds(rng, bits).items():
                for group in GROUPS if name in ("heavy-tailed", "denormal") else [32]:
                    vectors.add(f"{name}, int{bits}", values, bits, group)
    vectors.write()


if __name__ == "__main__":
    main()
