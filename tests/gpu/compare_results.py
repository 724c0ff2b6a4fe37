#!/usr/bin/env python3
"""Compares results of two devices: greedy tokens and their logprobs (run --logprobs 5 --ordered).

    tests/gpu/compare_results.py HOST.jsonl GPU.jsonl [TOLERANCE]

Tokens must be the same, and their logprobs within TOLERANCE (0.05). A GPU rounds what goes into a
product to f16, so where the host itself found two tokens nearly alike the GPU may take the other one:
it must be among the host's most likely, within twice the tolerance of the one taken. What follows in
that request is another text, and is not compared.
"""
import json
import sys


def fail(text):
    sys.exit(f"result: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def compare(host, gpu, tolerance):
    """The largest difference of logprobs, and the gap where the texts part or None."""
    largest = 0.0
    name = host["id"]
    for at, (ours, theirs) in enumerate(zip(host["logprobs"], gpu["logprobs"])):
        if ours["token_id"] == theirs["token_id"]:
            difference = abs(ours["logprob"] - theirs["logprob"])
            if not difference <= tolerance:
                fail(f"{name}: token {at} has logprob {theirs['logprob']}, not {ours['logprob']}")
            largest = max(largest, difference)
            continue
        likely = {entry["token_id"]: entry["logprob"] for entry in ours["top"]}
        gap = ours["logprob"] - likely.get(theirs["token_id"], float("-inf"))
        if not gap <= 2 * tolerance:
            fail(f"{name}: token {at} is {theirs['token_id']}, not {ours['token_id']} (gap {gap})")
        return largest, gap
    if host["token_ids"] != gpu["token_ids"]:
        fail(f"{name}: {len(gpu['token_ids'])} tokens, not {len(host['token_ids'])}")
    return largest, None


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    host, gpu = read(sys.argv[1]), read(sys.argv[2])
    tolerance = float(sys.argv[3]) if len(sys.argv) == 4 else 0.05
    if not host or [line["id"] for line in host] != [line["id"] for line in gpu]:
        fail("not results of the same requests")
    compared = [compare(a, b, tolerance) for a, b in zip(host, gpu)]
    gaps = [gap for _, gap in compared if gap is not None]
    text = f"{len(host) - len(gaps)} of {len(host)} requests have the host's tokens"
    if gaps:
        text += f", {len(gaps)} part at a near tie (gap {max(gaps):.4f} at most)"
    print(f"result: {text}; logprobs within {max(largest for largest, _ in compared):.4f}")


if __name__ == "__main__":
    main()
